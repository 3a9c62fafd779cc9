package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What is measured while nobody waits for a lock.

const (
	// Pairs at the beginning of a block that are not timed: threads and processors wake.
	untimed = 5
	// settle is how long what a library leaves in flight has to end, before the next has its turn.
	settle = 2 * time.Millisecond
	// patience is how long a connection, an Unlock, or the end of all goroutines may take.
	patience = 30 * time.Second
	takers   = 64
)

// samples are of Lock, of Unlock, and of both together.
type samples struct{ locks, unlocks, pairs []time.Duration }

func (s *samples) add(lock, unlock time.Duration) {
	s.locks, s.unlocks = append(s.locks, lock), append(s.unlocks, unlock)
	s.pairs = append(s.pairs, lock+unlock)
}

func (s *samples) figures() figures {
	return figures{
		"pair µs": micros(percentile(s.pairs, 50)), "p90 µs": micros(percentile(s.pairs, 90)),
		"longest µs": micros(percentile(s.pairs, 100)),
		"Lock µs":    micros(percentile(s.locks, 50)), "Unlock µs": micros(percentile(s.unlocks, 50)),
	}
}

// series is one library through all rounds: its client stays connected.
type series struct {
	samples

	library library
	client  *client
	on      *servers
	sent    *tally
	cost    cost
	of      int // how many pairs cost is of
}

// openSeries has done what is done only once: connections made, scripts sent.
func openSeries(ctx context.Context, on *servers, l library, pairs int) (*series, error) {
	s := &series{library: l, on: on, sent: newTally()}
	var err error
	if s.client, err = l.open(on.addrs, s.sent, l.ttl); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name, err)
	}
	if err := s.block(ctx, pairs); err != nil {
		s.client.close()
		return nil, err
	}
	s.sumUp()
	return s, nil
}

// block measures some pairs.
func (s *series) block(ctx context.Context, n int) error {
	lock := s.client.waiter(s.library.lockName("pairs"))
	spent, err := s.on.during(ctx, s.sent, func() error {
		for i := range untimed + n {
			lockTook, unlockTook, err := once(ctx, lock)
			if err != nil {
				return fmt.Errorf("%s: %w", s.library.name, err)
			}
			if i >= untimed {
				s.add(lockTook, unlockTook)
			}
		}
		sleep(ctx, settle)
		return nil
	})
	s.cost = s.cost.plus(spent)
	s.of += untimed + n
	return err
}

// sumUp ends a round.
func (s *series) sumUp() figures {
	f := s.cost.each(float64(s.of), s.figures())
	s.samples, s.cost, s.of = samples{}, cost{}, 0
	return f
}

// pairs has the libraries take turns, a block each, several times a round.
func pairs(ctx context.Context, r *round) error {
	all := make(map[string]*series)
	defer func() {
		for _, s := range all {
			s.client.close()
		}
	}()
	for _, l := range r.libraries {
		s, err := openSeries(ctx, r.on, l, r.block)
		if err != nil {
			return err
		}
		all[l.name] = s
	}
	for n := range r.rounds {
		for turn := range r.blocks {
			for _, l := range r.turn(n*r.blocks + turn) {
				if err := all[l.name].block(ctx, r.block); err != nil {
					return err
				}
			}
		}
		for _, l := range r.libraries {
			r.add("one goroutine", l, all[l.name].sumUp())
		}
	}
	return nil
}

// apart has goroutines share a client, each with a name of its own.
func apart(goroutines ...int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, n := range r.upTo(goroutines) {
			if err := r.several(func(round int, l library) error {
				return r.apart(ctx, n, round, l)
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (r *round) apart(ctx context.Context, goroutines, round int, l library) error {
	sent := newTally()
	c, err := l.open(r.on.addrs, sent, l.ttl)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var measuring, over atomic.Bool
	var done, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		lock := c.waiter(l.lockName("apart", round, goroutines, i))
		wg.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				_, _, err := once(ctx, lock)
				switch {
				case err != nil:
					failed.Add(1)
					sleep(ctx, settle)
				case measuring.Load():
					done.Add(1)
				}
			}
		})
	}
	spent, err := r.window(ctx, sent, &measuring)
	over.Store(true)
	defer time.AfterFunc(2*time.Second, cancel).Stop() // a pair that hangs is an error
	if err := errors.Join(err, awaitAll(&wg)); err != nil {
		return err
	}
	n := float64(done.Load())
	r.add(fmt.Sprint(goroutines, " goroutines"), l,
		spent.each(n, figures{"pairs/s": n / spent.seconds, "errors": float64(failed.Load())}))
	return nil
}

// window measures for a while, after a while.
func (r *round) window(ctx context.Context, sent *tally, measuring *atomic.Bool) (cost, error) {
	if !sleep(ctx, r.warmUp) {
		return cost{}, context.Cause(ctx)
	}
	return r.on.during(ctx, sent, func() error {
		measuring.Store(true)
		passed := sleep(ctx, r.duration)
		measuring.Store(false)
		if !passed {
			return context.Cause(ctx)
		}
		return nil
	})
}

// awaitAll gives up on goroutines that do not heed their context.
func awaitAll(wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("goroutines still wait %v after their context ended", patience)
	}
}

func inParallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all error
	for worker := range takers {
		wg.Go(func() {
			for i := worker; i < n; i += takers {
				if err := do(i); err != nil {
					mu.Lock()
					all = errors.Join(all, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return all
}

// held has one client hold many locks, of those libraries that renew them: of each at most so many.
func held(most map[string]int, counts ...int) func(context.Context, *round) error {
	return func(ctx context.Context, r *round) error {
		for _, n := range r.upTo(counts) {
			for _, l := range r.libraries {
				if n > most[l.name] {
					continue // it does not renew, or has goroutines for each lock
				}
				if err := r.held(ctx, n, l); err != nil {
					return fmt.Errorf("%d locks of %s: %w", n, l.name, err)
				}
			}
		}
		return nil
	}
}

func (r *round) held(ctx context.Context, n int, l library) error {
	sent := newTally()
	c, err := l.open(r.on.addrs, sent, l.ttl)
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := once(ctx, c.waiter("first")); err != nil { // connections and scripts
		return err
	}
	inUse := func() (heap, goroutines float64) {
		runtime.GC()
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return float64(mem.HeapAlloc), float64(runtime.NumGoroutine())
	}
	heap, goroutines := inUse()
	holds := make([]unlockFunc, n)
	if err := inParallel(n, func(i int) (err error) {
		holds[i], err = c.waiter(fmt.Sprintf("held-%d", i))(ctx)
		return err
	}); err != nil {
		return err
	}
	if !sleep(ctx, r.idle) {
		return context.Cause(ctx)
	}
	heapAfter, goroutinesAfter := inUse()
	window := 3 * r.idle
	spent, err := r.on.during(ctx, sent, func() error {
		sleep(ctx, window)
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	var lost atomic.Int64
	_ = inParallel(n, func(i int) error {
		if err := release(ctx, holds[i]); err != nil {
			lost.Add(1)
		}
		return nil
	})
	// A third of the TTL passes between two renewals.
	f := spent.each(float64(n)/100*window.Seconds()/(l.ttl.Seconds()/3), figures{
		"goroutines": goroutinesAfter - goroutines, "heap bytes": (heapAfter - heap) / float64(n),
		"lost": float64(lost.Load()),
	})
	r.add(fmt.Sprint(n, " locks"), l, f)
	return nil
}

// names locks each of many names once, and looks at the server's memory.
func names(ctx context.Context, r *round) error {
	for _, l := range r.libraries {
		if err := r.names(ctx, r.most, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

func (r *round) names(ctx context.Context, n int, l library) error {
	if err := r.on.redis[0].client.FlushAll(ctx).Err(); err != nil { // what others have left
		return err
	}
	sent := newTally()
	c, err := l.open(r.on.addrs, sent, l.ttl)
	if err != nil {
		return err
	}
	defer c.close()
	use := func(prefix string, n int) error {
		return inParallel(n, func(i int) error {
			_, _, err := once(ctx, c.waiter(fmt.Sprint(prefix, i)))
			return err
		})
	}
	if err := use("first-", takers); err != nil { // connections and scripts
		return err
	}
	before, err := r.on.memory(ctx)
	if err != nil {
		return err
	}
	spent, err := r.on.during(ctx, sent, func() error { return use("name-", n) })
	if err != nil {
		return err
	}
	atOnce, err := r.on.memory(ctx)
	if err != nil {
		return err
	}
	if !sleep(ctx, r.later) {
		return context.Cause(ctx)
	}
	later, err := r.on.memory(ctx)
	if err != nil {
		return err
	}
	r.add(fmt.Sprint(n, " names"), l, spent.each(float64(n), figures{
		"bytes at once": (atOnce - before) / float64(n), "bytes later": (later - before) / float64(n),
	}))
	return nil
}

// minority makes as many nodes unreachable as may be.
func minority(ctx context.Context, r *round) error {
	return r.several(func(round int, l library) error {
		for _, fault := range []string{"stopped", "killed"} {
			if err := r.minority(ctx, round, l, fault); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *round) minority(ctx context.Context, round int, l library, fault string) error {
	s, err := openSeries(ctx, r.on, l, r.block)
	if err != nil {
		return err
	}
	err = s.block(ctx, r.blocks*r.block)
	before := s.sumUp()["pair µs"]
	var away []*redisServer
	for i := range (len(r.on.redis) - 1) / 2 {
		away = append(away, r.on.redis[(round+i)%len(r.on.redis)])
	}
	change := func(what func(*redisServer)) error {
		return r.on.do(func(testing.TB) {
			for _, node := range away {
				what(node)
			}
		})
	}
	stop, restore := func(n *redisServer) { n.Stop() }, func(n *redisServer) { n.Continue() }
	if fault == "killed" {
		stop, restore = func(n *redisServer) { n.Kill() }, func(n *redisServer) { n.Restart() }
	}
	if err := errors.Join(err, change(stop)); err != nil {
		s.client.close()
		return err
	}
	// As many pairs as begin in a while, and so at least one.
	var failed float64
	lock := s.client.waiter(l.lockName(fault, round))
	for end := time.Now().Add(r.duration / 2); time.Now().Before(end) && ctx.Err() == nil; {
		lockTook, unlockTook, err := once(ctx, lock)
		if err == nil {
			s.add(lockTook, unlockTook)
			continue
		}
		failed++
		sleep(ctx, settle)
	}
	// What hangs does not go on when they are back, nor arrives in another library's turn.
	s.client.close()
	if err := change(restore); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	for _, node := range away {
		if err := node.awaitAnswer(ctx); err != nil {
			return err
		}
	}
	f := s.figures()
	f["times as long"], f["errors"] = f["pair µs"]/max(before, 1), failed
	r.add(fmt.Sprintf("%d of %d %s", len(away), len(r.on.redis), fault), l, f)
	return nil
}
