package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

// subject is a server that is measured, and its measurements so far.
type subject struct {
	*ground
	label     string
	pairs     []time.Duration
	handOvers []time.Duration
	perSecond []float64 // of each round
}

// newSubjects numbers servers whose labels are the same without secrets and parameters.
func newSubjects(ctx context.Context, urls []string, prefix string) ([]*subject, error) {
	var all []*subject
	count := map[string]int{}
	for _, arg := range urls {
		url, err := expandURL(arg)
		if err != nil {
			return nil, err
		}
		if err := refuse(ctx, url); err != nil {
			return nil, err
		}
		s := &subject{ground: newGround(url, prefix, "bench")}
		s.label = s.deployment.String()
		if count[s.label]++; count[s.label] > 1 {
			s.label = fmt.Sprintf("%s (%d)", s.label, count[s.label])
		}
		all = append(all, s)
	}
	for _, s := range all { // which nothing ends before somebody cleans up
		s.prepare(ctx)
	}
	return all, nil
}

// connect makes a client and its connections, so that these are not measured.
func (s *subject) connect(ctx context.Context) (*locker.Client, error) {
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := pair(ctx, c.Mutex(s.name("warm-up"))); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// bound is how long one lock may take: beyond that it is an outage.
const bound = 30 * time.Second

func pair(ctx context.Context, m *locker.Mutex) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return m.Unlock(context.WithoutCancel(ctx))
}

func (o *benchOptions) measurePairs(ctx context.Context, s *subject) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex(s.name("pairs"))
	for range o.pairs {
		began := time.Now()
		if err := pair(ctx, m); err != nil {
			return err
		}
		s.pairs = append(s.pairs, time.Since(began))
	}
	return nil
}

// settle is how long a hold lasts before a hand-over: long enough for the other client to join the queue.
const settle = 2 * time.Millisecond

// measureHandOvers has two clients wait for each other.
func (o *benchOptions) measureHandOvers(ctx context.Context, s *subject) error {
	var (
		mu       sync.Mutex // for the race detector: the measured lock protects this
		holder   = -1
		released time.Time
		count    atomic.Int64
	)
	enough := time.Now().Add(o.duration)
	turns := func(ctx context.Context, me int, m *locker.Mutex) error {
		for int(count.Load()) < o.pairs && (count.Load() < 2 || time.Now().Before(enough)) {
			bounded, cancel := context.WithTimeout(ctx, bound)
			err := m.Lock(bounded)
			cancel()
			if err != nil {
				return err
			}
			got := time.Now()
			mu.Lock()
			if holder == 1-me { // nobody waits who takes it twice in a row
				s.handOvers = append(s.handOvers, got.Sub(released))
				count.Add(1)
			}
			mu.Unlock()
			time.Sleep(settle)
			mu.Lock()
			holder, released = me, time.Now()
			mu.Unlock()
			if err := m.Unlock(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		return nil
	}
	name := s.name("hand-over")
	return together(ctx, 2, func(ctx context.Context, i int) error {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return turns(ctx, i, c.Mutex(name))
	})
}

func (o *benchOptions) measureThroughput(ctx context.Context, s *subject) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var done atomic.Int64
	began := time.Now()
	err = together(ctx, o.goroutines, func(ctx context.Context, i int) error {
		m := c.Mutex(s.name(fmt.Sprintf("throughput-%d", i)))
		for time.Since(began) < o.duration {
			if err := pair(ctx, m); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.perSecond = append(s.perSecond, float64(done.Load())/time.Since(began).Seconds())
	return nil
}

// together runs f n times at once, and returns the first error. That ends the context of the others: they may wait for the one
// that has failed.
func together(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(ctx, i) }()
	}
	var first error
	for range n {
		if first = firstError(first, <-errs); first != nil {
			cancel()
		}
	}
	return first
}
