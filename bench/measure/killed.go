package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// killed kills the holder, or the first who waits, while n others wait. All libraries wait at the
// same time: they do next to nothing.
func killed(n, clients int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for round := range r.long {
			for _, who := range []string{"holder", "waiter"} {
				took := make([]time.Duration, len(r.libraries))
				errs := make([]error, len(r.libraries))
				var wg sync.WaitGroup
				for i, l := range r.libraries {
					l.ttl = r.ttl
					wg.Go(func() { took[i], errs[i] = r.kill(ctx, l, round, who, min(n, r.most), clients) })
				}
				wg.Wait()
				for i, l := range r.libraries {
					if errs[i] != nil {
						r.add(who+" killed", l, figures{"errors": 1})
						continue
					}
					f := figures{"ms": millis(took[i])}
					if who == "holder" {
						f["beyond the TTL, ms"] = millis(took[i] - r.ttl)
					}
					r.add(who+" killed", l, f)
				}
			}
		}
		return context.Cause(ctx)
	}
}

// kill returns after how long another held the lock.
func (r *round) kill(ctx context.Context, l library, round int, who string,
	n, most int,
) (time.Duration, error) {
	clients, closeAll, err := l.openClients(min(most, n)+1, r.on.addrs, newTally())
	if err != nil {
		return 0, err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, beyond)
	defer cancel()
	name := l.lockName("killed", who, round)
	var unlock unlockFunc
	said := "holds"
	if who == "waiter" {
		if unlock, err = clients[0].waiter(name)(ctx); err != nil {
			return 0, err
		}
		said = "asks"
	}
	p, err := startProcess(ctx, job{l.name, r.ttl, r.on.addrs, name})
	if err != nil {
		return 0, err
	}
	defer p.kill()
	if err := p.await(said); err != nil {
		return 0, err
	}
	sleep(ctx, r.ttl/6)

	type turn struct {
		at  time.Time
		err error
	}
	first := make(chan turn, 1)
	var wg sync.WaitGroup
	for i := range n {
		lock := clients[1+i%(len(clients)-1)].waiter(name)
		wg.Go(func() {
			unlock, err := lock(ctx)
			select {
			case first <- turn{time.Now(), err}:
			default:
			}
			if err == nil {
				_ = release(ctx, unlock)
			}
		})
	}
	sleep(ctx, r.ttl/6) // they begin to wait
	begin := time.Now()
	p.kill()
	if unlock != nil {
		begin = time.Now()
		err = release(ctx, unlock)
	}
	var took time.Duration
	if err == nil {
		select {
		case t := <-first:
			took, err = t.at.Sub(begin), t.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel() // the others heed that, or have their turns
	return took, cmp.Or(err, awaitAll(&wg))
}

// jobVariable holds the job of a process that is to be killed, in its environment.
const jobVariable = "LOCKER_BENCH_TO_BE_KILLED"

// job is what such a process locks.
type job struct {
	Library string
	TTL     time.Duration
	Addrs   []string
	Name    string
}

// serveKill does not return in a process that is to be killed.
func serveKill() {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), beyond)
		err = j.run(ctx)
		cancel()
	}
	fmt.Println(err)
	os.Exit(1)
}

// run says what it does, a line each, and ends when the standard input does: with the process that
// will kill this one.
func (j job) run(ctx context.Context) error {
	for _, s := range subjects {
		for _, l := range s.libraries {
			if l.name != j.Library {
				continue
			}
			c, err := l.open(j.Addrs, newTally(), j.TTL)
			if err != nil {
				return err
			}
			lock := c.waiter(j.Name)
			fmt.Println("asks")
			if _, err := lock(ctx); err != nil {
				return err
			}
			fmt.Println("holds")
			_, err = io.Copy(io.Discard, os.Stdin)
			return err
		}
	}
	return fmt.Errorf("no library is called %q", j.Library)
}

// process is one that is to be killed.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	said  *bufio.Scanner
}

func startProcess(ctx context.Context, j job) (*process, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program)}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.said = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// await returns when the process has printed that.
func (p *process) await(line string) error {
	for p.said.Scan() {
		switch said := p.said.Text(); said {
		case line:
			return nil
		case "asks", "holds":
		default:
			return fmt.Errorf("the process that is to be killed: %s", said)
		}
	}
	return fmt.Errorf("the process that is to be killed has ended by itself: %w",
		cmp.Or(p.said.Err(), io.EOF))
}

// kill returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports that it was killed
	_ = p.input.Close()
}
