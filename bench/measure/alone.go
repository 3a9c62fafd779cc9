package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Measurements without waiters.

const (
	// settle is how long a goroutine pauses after an error.
	settle = 2 * time.Millisecond
	// patience is how long a connection, an Unlock, or the end of all goroutines may take.
	patience = 30 * time.Second
	takers   = 64
)

// apart has goroutines share a client, each with a name of its own.
func apart(ctx context.Context, r *round, goroutines, turn int, l library) error {
	c, err := r.crowd(ctx, l, 1)
	if err != nil {
		return err
	}
	took := make([][]time.Duration, goroutines)
	for i := range goroutines {
		lock := c.clients[0].waiter(l.lockName("apart", turn, goroutines, i))
		c.wg.Go(func() {
			for !c.over.Load() && c.ctx.Err() == nil {
				d, err := once(c.ctx, lock)
				switch {
				case err != nil:
					c.failed.Add(1)
					sleep(c.ctx, settle)
				case c.measuring.Load():
					took[i] = append(took[i], d)
				}
			}
		})
	}
	spent, err := c.window(1)
	if err := c.end(err, 2*time.Second); err != nil { // a pair that hangs is an error
		return err
	}
	all := slices.Concat(took...)
	n, cell := float64(len(all)), "one goroutine"
	if goroutines > 1 {
		cell = fmt.Sprint(goroutines, " goroutines")
	}
	r.add(cell, l, spent.each(n, figures{
		"pair µs": micros(percentile(all, 50)), "pairs/s": n / spent.seconds, "errors": float64(c.failed.Load()),
	}))
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

// held has one client hold n locks.
func held(ctx context.Context, r *round, n, turn int, l library) error {
	if turn > 0 {
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

// names locks each of many names once, and looks at the memory of a server that has nothing else.
func names(ctx context.Context, r *round, n, turn int, l library) error {
	if turn > 0 {
		return nil
	}
	on, err := startRedis(1)(ctx)
	if err != nil {
		return err
	}
	defer on.stop()
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
	after, err := on.memory()
	r.add(fmt.Sprint(n, " names"), l, spent.each(float64(n), figures{"bytes": (after - before) / float64(n)}))
	return err
}
