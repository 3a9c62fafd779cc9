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

	"golang.org/x/sync/errgroup"

	"github.com/go-locker/locker/internal/test/testserver"
)

// Measurements without waiters.

const (
	// untimed is how many pairs at the beginning of a block are not timed: threads and processors
	// wake.
	untimed = 5
	// settle is how long requests in flight of a library have to end before the next one's turn.
	settle = 2 * time.Millisecond
	// patience is how long a connection, an Unlock, or the end of all goroutines may take.
	patience = 30 * time.Second
	takers   = 64
)

// pairFigures returns the percentiles of the durations of pairs.
func pairFigures(took []time.Duration) figures {
	return figures{"pair µs": micros(percentile(took, 50)), "longest µs": micros(percentile(took, 100))}
}

// series is one library through all rounds: its client stays connected.
type series struct {
	library library
	client  *client
	on      *servers
	sent    *tally
	took    []time.Duration // by each pair
	cost    cost
	of      int // number of pairs that cost covers
}

// openSeries connects, and runs pairs so that scripts are loaded before the measurement.
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
			took, err := once(ctx, lock)
			if err != nil {
				return fmt.Errorf("%s: %w", s.library.name, err)
			}
			if i >= untimed {
				s.took = append(s.took, took)
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
	f := s.cost.each(float64(s.of), pairFigures(s.took))
	s.took, s.cost, s.of = nil, cost{}, 0
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
	for n := range 2 * r.rounds {
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
func apart(ctx context.Context, r *round, goroutines, turn int, l library) error {
	c, err := r.crowd(ctx, l, 1)
	if err != nil {
		return err
	}
	var done atomic.Int64
	for i := range goroutines {
		lock := c.clients[0].waiter(l.lockName("apart", turn, goroutines, i))
		c.wg.Go(func() {
			for !c.over.Load() && c.ctx.Err() == nil {
				_, err := once(c.ctx, lock)
				switch {
				case err != nil:
					c.failed.Add(1)
					sleep(c.ctx, settle)
				case c.measuring.Load():
					done.Add(1)
				}
			}
		})
	}
	spent, err := c.window(1 + goroutines/5000)       // each is to have been there
	if err := c.end(err, 2*time.Second); err != nil { // a pair that hangs is an error
		return err
	}
	n := float64(done.Load())
	r.add(fmt.Sprint(goroutines, " goroutines"), l,
		spent.each(n, figures{"pairs/s": n / spent.seconds, "errors": float64(c.failed.Load())}))
	return nil
}

// crowd is goroutines that lock with clients of one library, while something is measured.
type crowd struct {
	*round

	clients []*client
	sent    *tally
	ctx     context.Context // of their locks
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	measuring, over  atomic.Bool
	failed           atomic.Int64
	inside, overlaps atomic.Int64 // of the lock's holders
}

// crowd opens n clients, or none.
func (r *round) crowd(ctx context.Context, l library, n int) (*crowd, error) {
	c := &crowd{round: r, sent: newTally()}
	// It ends later than every measurement: see lockFunc.
	c.ctx, c.cancel = context.WithTimeout(ctx, r.warmUp+r.duration+r.idle+beyond)
	for range n {
		one, err := l.open(r.on.addrs, c.sent, l.ttl)
		if err != nil {
			return nil, c.end(err, 0)
		}
		c.clients = append(c.clients, one)
	}
	return c, nil
}

// end stops goroutines before their next Lock, cancels the waiting ones after a delay, and closes
// the clients.
func (c *crowd) end(err error, after time.Duration) error {
	c.over.Store(true)
	defer time.AfterFunc(after, c.cancel).Stop()
	defer func() {
		for _, one := range c.clients {
			one.close()
		}
		c.cancel()
	}()
	return errors.Join(err, awaitAll(&c.wg))
}

// note counts an error, and pauses after it.
func (c *crowd) note(err error, pause time.Duration) {
	if err == nil {
		return
	}
	if c.ctx.Err() == nil && !c.over.Load() {
		c.failed.Add(1)
	}
	sleep(c.ctx, pause)
}

// section is what the lock protects.
func (c *crowd) section(d time.Duration) {
	if c.inside.Add(1) > 1 && !c.over.Load() {
		c.overlaps.Add(1)
	}
	time.Sleep(d)
	c.inside.Add(-1)
}

// window measures for a while, after a while: several times as long as is usual.
func (c *crowd) window(times int) (cost, error) {
	if !sleep(c.ctx, time.Duration(times)*c.warmUp) {
		return cost{}, context.Cause(c.ctx)
	}
	return c.on.during(c.ctx, c.sent, func() error {
		c.measuring.Store(true)
		passed := sleep(c.ctx, time.Duration(times)*c.duration)
		c.measuring.Store(false)
		if !passed {
			return context.Cause(c.ctx)
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
	var workers errgroup.Group
	for worker := range takers {
		workers.Go(func() error {
			for i := worker; i < n; i += takers {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return workers.Wait()
}

// renewing has the names of libraries that renew, and how many locks they are to hold at most: some
// have goroutines for each.
type renewing map[string]int

// held has one client hold n locks.
func (most renewing) held(ctx context.Context, r *round, n, turn int, l library) error {
	if n > most[l.name] || turn > 0 {
		return nil
	}
	sent := newTally()
	l.ttl = 3 * r.idle // a third of which passes between two renewals
	c, err := l.open(r.on.addrs, sent, l.ttl)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := once(ctx, c.waiter("first")); err != nil { // connections and scripts
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
	taking, err := r.on.during(ctx, sent, func() error {
		return inParallel(n, func(i int) (err error) {
			holds[i], err = c.waiter(fmt.Sprintf("held-%d", i))(ctx)
			return err
		})
	})
	if err != nil {
		return err
	}
	if !sleep(ctx, r.idle) {
		return context.Cause(ctx)
	}
	heapAfter, goroutinesAfter := inUse()
	spent, err := r.on.during(ctx, sent, func() error {
		sleep(ctx, r.idle)
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	var lost atomic.Int64
	ctx, cancel := context.WithTimeout(ctx, patience) // for all of them, where a server has stopped
	defer cancel()
	_ = inParallel(n, func(i int) error {
		if err := holds[i](ctx); err != nil {
			lost.Add(1)
		}
		return nil
	})
	f := spent.each(float64(n)/100, figures{
		"goroutines": goroutinesAfter - goroutines, "heap bytes": (heapAfter - heap) / float64(n),
		"server bytes": taking.memory / float64(n), "lost": float64(lost.Load()),
	})
	r.add(fmt.Sprint(n, " locks"), l, f)
	return nil
}

// names locks each of many names once, and looks at the memory of a server that has nothing else: at
// once, and when all else has been measured that is to be.
func names(ctx context.Context, r *round, n, turn int, l library) error {
	if turn > 0 {
		return nil
	}
	on, err := startRedis(1)(ctx)
	if err != nil {
		return err
	}
	sent := newTally()
	c, err := l.open(on.addrs, sent, l.ttl)
	if err != nil {
		return err
	}
	defer c.close()
	use := func(prefix string, n int) error {
		return inParallel(n, func(i int) error {
			_, err := once(ctx, c.waiter(fmt.Sprint(prefix, i)))
			return err
		})
	}
	if err := use("first-", takers); err != nil { // connections and scripts
		return err
	}
	before, err := on.memory()
	if err != nil {
		return err
	}
	spent, err := on.during(ctx, sent, func() error { return use("name-", n) })
	if err != nil {
		return err
	}
	atOnce, err := on.memory()
	due := time.Now().Add(r.later)
	r.atLast(func() error {
		defer on.stop()
		if !sleep(ctx, time.Until(due)) {
			return context.Cause(ctx)
		}
		later, err := on.memory()
		r.add(fmt.Sprint(n, " names"), l, spent.each(float64(n), figures{
			"bytes at once": (atOnce - before) / float64(n), "bytes later": (later - before) / float64(n),
		}))
		return err
	})
	return err
}

// minority makes as many nodes unreachable as may be.
func minority(ctx context.Context, r *round) error {
	for _, fault := range []string{"stopped", "killed"} {
		for i, l := range r.libraries {
			if err := r.minority(ctx, i, l, fault); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

func (r *round) minority(ctx context.Context, round int, l library, fault string) error {
	s, err := openSeries(ctx, r.on, l, r.block)
	if err != nil {
		return err
	}
	err = s.block(ctx, r.blocks*r.block)
	before := s.sumUp()["pair µs"]
	var away []*testserver.RedisServer
	for i := range (len(r.on.redis) - 1) / 2 {
		away = append(away, r.on.redis[(round+i)%len(r.on.redis)])
	}
	change := func(what func(*testserver.RedisServer)) error {
		return r.on.do(func(testing.TB) {
			for _, node := range away {
				what(node)
			}
		})
	}
	stop, restore := (*testserver.RedisServer).Stop, func(n *testserver.RedisServer) {
		n.Continue()
		n.Do("PING") // all that it had missed is done
	}
	if fault == "killed" {
		stop, restore = (*testserver.RedisServer).Kill, (*testserver.RedisServer).Restart
	}
	if err := errors.Join(err, change(stop)); err != nil {
		s.client.close()
		return err
	}
	// As many pairs as begin in a while, and so at least one.
	var failed float64
	lock := s.client.waiter(l.lockName(fault, round))
	for end := time.Now().Add(r.duration / 2); time.Now().Before(end) && ctx.Err() == nil; {
		took, err := once(ctx, lock)
		if err == nil {
			s.took = append(s.took, took)
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
	f := pairFigures(s.took)
	f["times as long"], f["errors"] = f["pair µs"]/max(before, 1), failed
	r.add(fmt.Sprintf("%d of %d %s", len(away), len(r.on.redis), fault), l, f)
	return nil
}
