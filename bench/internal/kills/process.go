package kills

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
)

// variable holds the job of a process that is to be killed, in its environment.
const variable = "LOCKER_BENCH_TO_BE_KILLED"

// job is what such a process locks.
type job struct {
	Library string
	TTL     time.Duration
	Addrs   []string
	Name    string
}

// What such a process says, a line each.
const (
	asks  = "asks"
	holds = "holds"
)

// Serve is called first by a program that measures kills. It does not return in a process that is to be killed.
func Serve(known contend.Libraries) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	var e job
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		err = e.run(known)
	}
	fmt.Println(err)
	os.Exit(1)
}

// run ends when the standard input does: with the process that will kill this one.
func (e job) run(known contend.Libraries) error {
	libraries, err := known.Named(e.Library)
	if err != nil {
		return err
	}
	l := libraries[0]
	l.TTL = e.TTL
	c, err := l.Connect(e.Addrs, wire.NewTally())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), contend.Beyond)
	defer cancel()
	lock := c.Waiter(e.Name)
	fmt.Println(asks)
	if _, err := lock(ctx); err != nil {
		return err
	}
	fmt.Println(holds)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is one that is to be killed.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	said  *bufio.Scanner
}

func start(ctx context.Context, e job) (*process, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program)}
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
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
		case asks, holds:
		default:
			return fmt.Errorf("the process that is to be killed: %s", said)
		}
	}
	return fmt.Errorf("the process that is to be killed has ended by itself: %w", cmp.Or(p.said.Err(), io.EOF))
}

// kill returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports that it was killed
	_ = p.input.Close()
}
