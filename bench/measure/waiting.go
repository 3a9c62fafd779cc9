package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What is measured while many wait for one name.

const (
	// beyond is how much longer than the measurement the contexts live that are passed to Lock: more than any TTL here;
	// see lockFunc.
	beyond = 90 * time.Second
	// Between an error and the next try.
	retry = 20 * time.Millisecond
	// Long enough that the one that unlocked before waits again.
	handoverHold = 5 * time.Millisecond
)

// section is what the lock protects.
type section struct {
	inside, overlaps atomic.Int64
	over             atomic.Bool // holds that begin from now on do not count
}

func (s *section) enter() {
	if s.inside.Add(1) > 1 && !s.over.Load() {
		s.overlaps.Add(1)
	}
}

func (s *section) leave() { s.inside.Add(-1) }

// contention is what many who want one name do.
type contention struct {
	hold, think time.Duration
	clients     int // over which waiters are spread, at most
}

// contended has each number of waiters want one name.
func contended(how contention, waiters ...int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, n := range r.upTo(waiters) {
			if err := r.several(func(round int, l library) error { return r.contended(ctx, how, n, round, l) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// waiter locks, holds, unlocks and thinks, until its context ends.
type waiter struct {
	contention

	lock      lockFunc
	section   *section
	measuring *atomic.Bool
	since     atomic.Pointer[time.Time] // when the wait in progress began; nil outside Lock
	waits     []time.Duration           // of the acquisitions while measuring
	errors    int
}

func (w *waiter) run(ctx context.Context) {
	var pause time.Duration
	if w.think > 0 {
		pause = rand.N(w.think) // they do not begin in step
	}
	for ; sleep(ctx, pause); pause = w.think {
		start := time.Now()
		w.since.Store(&start)
		unlock, err := w.lock(ctx)
		for err != nil {
			w.note(ctx, err)
			if !sleep(ctx, retry) { // part of the same wait
				return
			}
			unlock, err = w.lock(ctx)
		}
		wait := time.Since(start)
		w.since.Store(nil)
		w.section.enter()
		if w.measuring.Load() {
			w.waits = append(w.waits, wait)
		}
		time.Sleep(w.hold)
		w.section.leave()
		w.note(ctx, release(ctx, unlock))
	}
}

func (w *waiter) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !w.section.over.Load() {
		w.errors++
	}
}

func (r *round) contended(ctx context.Context, how contention, n, round int, l library) error {
	sent := newTally()
	clients, closeAll, err := l.openClients(min(how.clients, n), r.on.addrs, sent)
	if err != nil {
		return err
	}
	defer closeAll()
	name := l.lockName("contended", n, round)
	var sec section
	var measuring atomic.Bool
	ctx, cancel := context.WithTimeout(ctx, r.warmUp+r.duration+beyond)
	defer cancel()
	all := make([]*waiter, n)
	var wg sync.WaitGroup
	for i := range all {
		w := &waiter{contention: how, lock: clients[i%len(clients)].waiter(name), section: &sec, measuring: &measuring}
		all[i] = w
		wg.Go(func() { w.run(ctx) })
	}
	spent, err := r.window(ctx, sent, &measuring)
	end := time.Now()
	var longest time.Duration // also of the waits that went on at the end
	for _, w := range all {
		if since := w.since.Load(); since != nil {
			longest = max(longest, end.Sub(*since))
		}
	}
	sec.over.Store(true)
	cancel()
	if err := errors.Join(err, awaitAll(&wg)); err != nil {
		return err
	}
	var waits []time.Duration
	shares := make([]int, n)
	f := figures{"overlaps": float64(sec.overlaps.Load()), "starved": 0, "errors": 0}
	for i, w := range all {
		waits = append(waits, w.waits...)
		f["errors"] += float64(w.errors)
		if shares[i] = len(w.waits); shares[i] == 0 {
			f["starved"]++
		}
	}
	f["acquisitions/s"] = float64(len(waits)) / spent.seconds
	f["wait p50 ms"], f["p99 ms"] = millis(percentile(waits, 50)), millis(percentile(waits, 99))
	f["longest ms"], f["fairness"] = millis(max(longest, percentile(waits, 100))), jain(shares)
	r.add(fmt.Sprintf("%d on %d", n, len(clients)), l, spent.each(float64(len(waits)), f))
	return nil
}

// handover measures how long the lock is nobody's: from the call of Unlock until the Lock of one of eight who wait has
// returned. The one that unlocks asks again only after that.
func handover(ctx context.Context, r *round) error {
	return r.several(func(round int, l library) error { return r.handover(ctx, round, l) })
}

// relay notes when the lock changes hands.
type relay struct {
	mu       sync.Mutex
	unlocked time.Time     // when the last holder called Unlock; zero before the first
	taken    chan struct{} // closed when the last holder's successor has the lock
	passes   []time.Duration
	errors   int
}

// take is called by each holder, and returns the channel that its successor will close.
func (r *relay) take(now time.Time) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unlocked.IsZero() {
		r.passes = append(r.passes, now.Sub(r.unlocked))
	}
	if r.taken != nil {
		close(r.taken)
	}
	r.taken = make(chan struct{})
	return r.taken
}

func (r *relay) note(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// run is one of those who take turns.
func (r *relay) run(ctx context.Context, lock lockFunc, sec *section) {
	failed := func(err error) {
		if err != nil && ctx.Err() == nil {
			r.note(func() { r.errors++ })
		}
	}
	for ctx.Err() == nil {
		unlock, err := lock(ctx)
		now := time.Now()
		if err != nil {
			failed(err)
			sleep(ctx, retry)
			continue
		}
		sec.enter()
		taken := r.take(now)
		time.Sleep(handoverHold)
		sec.leave()
		r.note(func() { r.unlocked = time.Now() })
		failed(release(ctx, unlock))
		select {
		case <-taken:
		case <-ctx.Done():
		}
	}
}

func (r *round) handover(ctx context.Context, round int, l library) error {
	clients, closeAll, err := l.openClients(9, r.on.addrs, newTally())
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, r.warmUp+r.duration+beyond)
	defer cancel()
	var turns relay
	var sec section
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { turns.run(ctx, c.waiter(l.lockName("handover", round)), &sec) })
	}
	var pings []time.Duration
	if sleep(ctx, r.warmUp) {
		turns.note(func() { turns.passes = nil })
		for end := time.Now().Add(r.duration); time.Now().Before(end) && err == nil; sleep(ctx, 20*time.Millisecond) {
			start := time.Now()
			err = r.on.redis[0].client.Ping(ctx).Err()
			pings = append(pings, time.Since(start))
		}
	}
	sec.over.Store(true)
	cause := context.Cause(ctx)
	var passes []time.Duration
	turns.note(func() { passes = slices.Clone(turns.passes) })
	cancel()
	if err := errors.Join(cause, err, awaitAll(&wg)); err != nil {
		return err
	}
	r.add("8 waiters", l, figures{
		"p50 µs": micros(percentile(passes, 50)), "p99 µs": micros(percentile(passes, 99)), "PING p50 µs": micros(percentile(pings, 50)),
		"errors": float64(turns.errors), "overlaps": float64(sec.overlaps.Load()),
	})
	return nil
}

// idle has some wait behind one long hold, each on a client of its own.
func idle(n int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, l := range r.libraries {
			if err := r.idling(ctx, min(n, r.most), l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		return nil
	}
}

func (r *round) idling(ctx context.Context, n int, l library) error {
	sent := newTally()
	clients, closeAll, err := l.openClients(n+1, r.on.addrs, sent)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(ctx, r.idle+beyond)
	defer cancel()
	name := l.lockName("idle")
	unlock, err := clients[0].waiter(name)(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, c := range clients[1:] {
		wg.Go(func() {
			if unlock, err := c.waiter(name)(ctx); err == nil {
				_ = release(ctx, unlock)
			}
		})
	}
	sleep(ctx, r.idle/5) // they connect
	spent, err := r.on.during(ctx, sent, func() error { sleep(ctx, r.idle); return context.Cause(ctx) })
	cancel()
	if err := errors.Join(err, release(ctx, unlock), awaitAll(&wg)); err != nil {
		return err
	}
	r.add(fmt.Sprint(n, " waiters"), l, figures{
		"requests/s": spent.sent / spent.seconds, "run/s": spent.run / spent.seconds, "server µs/s": spent.serverUs / spent.seconds,
	})
	return nil
}

// killed kills the holder, or the first who waits, while n others wait. All libraries wait at the same time: they do next to
// nothing.
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
func (r *round) kill(ctx context.Context, l library, round int, who string, n, most int) (time.Duration, error) {
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

// run says what it does, a line each, and ends when the standard input does: with the process that will kill this one.
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
	return fmt.Errorf("the process that is to be killed has ended by itself: %w", cmp.Or(p.said.Err(), io.EOF))
}

// kill returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports that it was killed
	_ = p.input.Close()
}
