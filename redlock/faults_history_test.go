package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// history is one run of several processes, each with a Client of its own, over nodes whose network is bad. Unlike
// the simulation it has the core in it, and any number of nodes.
type history struct {
	t *testing.T

	mu      sync.Mutex
	holds   map[*locker.Hold]time.Time // deadlines as they were last seen
	largest uint64
	grants  int
}

const (
	histTTL = 300 * time.Millisecond
	histFor = 20 * time.Second
)

// weather draws what happens to a request: most are quick.
func weather(r *rand.Rand, mu *sync.Mutex) func(verb, string) path {
	slow := func() time.Duration {
		switch p := r.IntN(100); {
		case p < 2:
			return time.Duration(r.Int64N(int64(2 * histTTL)))
		case p < 20:
			return time.Duration(r.Int64N(int64(histTTL / 8)))
		default:
			return time.Duration(r.Int64N(int64(2 * time.Millisecond)))
		}
	}
	return func(verb, string) path {
		mu.Lock()
		defer mu.Unlock()
		p := path{there: slow(), back: slow()}
		switch r.IntN(60) {
		case 0:
			p.lost = true
		case 1:
			p.mute = true
		case 2:
			p.err = errRefused
		}
		return p
	}
}

func (h *history) granted(hold *locker.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !now.Before(hold.Deadline()) {
		return
	}
	for other, until := range h.holds {
		select {
		case <-other.Lost():
			continue
		default:
		}
		if now.Before(until) {
			h.t.Errorf("%d is granted while %d is held for another %v", hold.Token(), other.Token(), until.Sub(now))
		}
	}
	if hold.Token() <= h.largest {
		h.t.Errorf("token %d after %d", hold.Token(), h.largest)
	}
	h.largest = max(h.largest, hold.Token())
	h.holds[hold] = hold.Deadline()
	h.grants++
}

func (h *history) seen(hold *locker.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[hold] = hold.Deadline()
}

func (h *history) over(hold *locker.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, hold)
}

// process locks and unlocks until ctx ends.
func (h *history) process(ctx context.Context, c *locker.Client, r *rand.Rand) {
	m := c.Mutex("x")
	for ctx.Err() == nil {
		hold, err := m.TryAcquire(ctx)
		if err != nil {
			time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
			continue
		}
		h.granted(hold)
		for range r.IntN(6) {
			time.Sleep(time.Duration(r.Int64N(int64(histTTL / 3))))
			if hold.Extend(ctx) != nil {
				break
			}
			h.seen(hold)
		}
		h.over(hold)
		if err := hold.Unlock(context.Background()); err == nil && r.IntN(4) == 0 {
			continue
		}
		time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
	}
}

// rememberingRestarts takes nodes down and up again, with all they know.
func rememberingRestarts(ctx context.Context, stages []*stage, r *rand.Rand) {
	for ctx.Err() == nil {
		s := stages[r.IntN(len(stages))]
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		time.Sleep(time.Duration(r.Int64N(int64(histTTL))))
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(time.Duration(r.Int64N(int64(2 * histTTL))))
	}
}

func runHistory(t *testing.T, nodes int, seed uint64) (grants int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &history{t: t, holds: map[*locker.Hold]time.Time{}}
		stages := newStages(nodes)
		var mu sync.Mutex
		source := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
		for i, s := range stages {
			s.on(weather(source(uint64(100+i)), &mu))
		}
		ctx, cancel := context.WithTimeout(t.Context(), histFor)
		defer cancel()
		var all sync.WaitGroup
		for p := range 4 {
			d := stageDriver(t, stages)
			skew := time.Duration(p-2) * time.Second
			d.clock = func() time.Time { return time.Now().Add(skew) }
			c, err := locker.New(d, locker.WithTTL(histTTL), locker.WithoutRenewal())
			require.NoError(t, err)
			all.Go(func() {
				h.process(ctx, c, source(uint64(p)))
				_ = c.Close()
			})
		}
		all.Go(func() { rememberingRestarts(ctx, stages, source(50)) })
		all.Wait()
		stages[0].network.Wait()
		grants = h.grants
	})
	return grants
}

// One holder at a time, and tokens that rise, with the core in between and any number of nodes.
func TestFaults_histories(t *testing.T) {
	sizes, seeds := []int{3, 4}, uint64(2)
	if testwait.Exhaustive() {
		sizes, seeds = []int{3, 4, 5, 6, 7}, 3
	}
	for _, nodes := range sizes {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			grants := 0
			for seed := range seeds {
				grants += runHistory(t, nodes, seed)
			}
			t.Logf("%d grants", grants)
			assert.Greater(t, grants, 30)
		})
	}
}

// Contenders that start together must get on: the votes for an attempt split, and pauses differ. They must get on
// too where a round trip takes half as long as the longest pause, and every node that is up has to agree.
func TestFaults_contendersGetOn(t *testing.T) {
	for _, c := range []contest{
		{nodes: 3, trip: 2 * time.Millisecond},
		{nodes: 4, trip: 2 * time.Millisecond},
		{nodes: 5, trip: 2 * time.Millisecond, down: 2},
		{nodes: 3, trip: 50 * time.Millisecond},
		{nodes: 4, trip: 150 * time.Millisecond, down: 1},
	} {
		t.Run(fmt.Sprintf("%d nodes, %d down, %v", c.nodes, c.down, c.trip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t) })
		})
	}
}

// contest is many contenders for one lock.
type contest struct {
	nodes, down int
	trip        time.Duration // there and back, on average
}

const contenders = 32

func (c contest) run(t *testing.T) {
	stages := newStages(c.nodes)
	r := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	for i, s := range stages {
		s.on(func(verb, string) path {
			mu.Lock()
			defer mu.Unlock()
			if i < c.down {
				return path{err: errRefused}
			}
			way := func() time.Duration { return c.trip/4 + time.Duration(r.Int64N(int64(c.trip/2))) }
			return path{there: way(), back: way()}
		})
	}
	var all sync.WaitGroup
	errs := make([]error, contenders)
	start := time.Now()
	for i := range errs {
		client, err := locker.New(stageDriver(t, stages), locker.WithTTL(ttl))
		require.NoError(t, err)
		all.Go(func() {
			m := client.Mutex("x")
			errs[i] = m.Lock(t.Context())
			time.Sleep(time.Millisecond)
			errs[i] = errors.Join(errs[i], m.Unlock(t.Context()), client.Close())
		})
	}
	all.Wait()
	took := time.Since(start)
	stages[0].network.Wait()
	require.NoError(t, errors.Join(errs...))
	attempts := stages[c.nodes-1].counted(propose) / contenders
	t.Logf("%d grants in %v, %d attempts each", contenders, took, attempts)
	assert.Less(t, attempts, 60)
}
