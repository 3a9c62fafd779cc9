package contend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/bench/internal/stats"
)

const (
	// Beyond is how much longer than the measurement the contexts live that are passed to Lock: more than any
	// TTL here; see LockFunc.
	Beyond = 90 * time.Second
	// Between an error and the next try.
	retry = 20 * time.Millisecond
	// Who begins to wait so much later than another has its turn later too: about when each request
	// arrives, nobody can tell.
	inTurn = 10 * time.Millisecond
	// How long an Unlock may take, and the end of all waiters.
	patience = 30 * time.Second
)

// Cell is how contention is measured.
type Cell struct {
	Name    string // of the lock
	Round   int
	Waiters int
	Clients int // over which waiters are spread, at most

	Hold, Think      time.Duration
	WarmUp, Duration time.Duration
}

// Outcome is what came of one Cell, as the waiters see it: one name, and everybody wants it.
type Outcome struct {
	Acquisitions int `json:"acquisitions"`
	// The wait percentiles are of the waits that ended within the measurement. The maximum is also of
	// those that went on at its end, as far as they had come.
	WaitP50Ms float64 `json:"waitP50Ms"`
	WaitP99Ms float64 `json:"waitP99Ms"`
	WaitMaxMs float64 `json:"waitMaxMs"`
	Jain      float64 `json:"jain"`
	Starved   int     `json:"starved"`   // waiters without any acquisition
	OutOfTurn int     `json:"outOfTurn"` // acquisitions while another waited that had begun long before
	Errors    int     `json:"errors"`    // of Lock and Unlock
	Error     string  `json:"error,omitempty"`
	Overlaps  int64   `json:"overlaps"` // holds that began while another lasted
}

// Each is the share of one acquisition.
func (o *Outcome) Each(total float64) float64 { return total / float64(max(o.Acquisitions, 1)) }

// Section is what the lock protects.
type Section struct {
	inside, overlaps atomic.Int64
	over             atomic.Bool // holds that begin from now on do not count
}

// End has holds that begin from now on not count.
func (s *Section) End() { s.over.Store(true) }

// Overlaps are holds that began while another lasted.
func (s *Section) Overlaps() int64 { return s.overlaps.Load() }

// Enter begins a hold.
func (s *Section) Enter() {
	if s.inside.Add(1) > 1 && !s.over.Load() {
		s.overlaps.Add(1)
	}
}

// Leave ends it.
func (s *Section) Leave() { s.inside.Add(-1) }

// waiter locks, holds, unlocks and thinks, until its context ends.
type waiter struct {
	lock      LockFunc
	cell      Cell
	section   *Section
	measuring *atomic.Bool
	since     atomic.Pointer[time.Time] // when the wait under way began; nil outside Lock

	rivals []*waiter // all, this one too

	waits     []time.Duration // of the acquisitions while measuring
	outOfTurn int
	errors    int
	err       error // the first
}

func (w *waiter) run(ctx context.Context) {
	for pause := w.firstPause(); Sleep(ctx, pause); pause = w.cell.Think {
		start := time.Now()
		w.since.Store(&start)
		unlock, ok := w.acquire(ctx)
		wait := time.Since(start)
		if !ok {
			return
		}
		w.since.Store(nil)
		w.section.Enter()
		if w.measuring.Load() {
			w.waits = append(w.waits, wait)
			if w.overtakes(start) {
				w.outOfTurn++
			}
		}
		time.Sleep(w.cell.Hold)
		w.section.Leave()
		w.note(Release(ctx, unlock))
	}
}

// overtakes reports whether somebody still waits who began long before start.
func (w *waiter) overtakes(start time.Time) bool {
	for _, rival := range w.rivals {
		if since := rival.since.Load(); since != nil && start.Sub(*since) > inTurn {
			return true
		}
	}
	return false
}

// firstPause has waiters not begin in step.
func (w *waiter) firstPause() time.Duration {
	if w.cell.Think <= 0 {
		return 0
	}
	return rand.N(w.cell.Think)
}

// acquire tries again after an error, as part of the same wait, until ctx ends.
func (w *waiter) acquire(ctx context.Context) (UnlockFunc, bool) {
	for {
		unlock, err := w.lock(ctx)
		if err == nil {
			return unlock, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		w.note(err)
		if !Sleep(ctx, retry) {
			return nil, false
		}
	}
}

func (w *waiter) note(err error) {
	if err == nil || w.section.over.Load() {
		return
	}
	w.errors++
	if w.err == nil {
		w.err = err
	}
}

// Release unlocks also if ctx has ended.
func Release(ctx context.Context, unlock UnlockFunc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return unlock(ctx)
}

// Run has waiters contend for a while, spread over the clients. After the warm-up it calls around,
// which calls measure.
func (cell Cell) Run(ctx context.Context, clients []*Client, around func(measure func() error) error) (Outcome, error) {
	var o Outcome
	var sec Section
	var measuring atomic.Bool
	all := make([]*waiter, cell.Waiters)
	for i := range all {
		all[i] = &waiter{
			lock: clients[i%len(clients)].Waiter(cell.Name), cell: cell, section: &sec, measuring: &measuring,
		}
	}
	for _, w := range all {
		w.rivals = all
	}
	ctx, cancel := context.WithTimeout(ctx, cell.WarmUp+cell.Duration+Beyond)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() { w.run(ctx) })
	}
	err := cell.window(ctx, around, &measuring)
	end := time.Now()
	underWay := make([]time.Duration, 0, cell.Waiters)
	for _, w := range all {
		if since := w.since.Load(); since != nil {
			underWay = append(underWay, end.Sub(*since))
		}
	}
	sec.End()
	cancel()
	if err := errors.Join(err, AwaitAll(&wg)); err != nil {
		return o, fmt.Errorf("%s: %w", cell.Name, err)
	}
	o.Overlaps = sec.Overlaps()
	o.sumUp(all, underWay)
	return o, nil
}

// window measures for a while, after a while.
func (cell Cell) window(ctx context.Context, around func(measure func() error) error, measuring *atomic.Bool) error {
	if !Sleep(ctx, cell.WarmUp) {
		return context.Cause(ctx)
	}
	return around(func() error {
		measuring.Store(true)
		passed := Sleep(ctx, cell.Duration)
		measuring.Store(false)
		if !passed {
			return context.Cause(ctx)
		}
		return nil
	})
}

// AwaitAll gives up on waiters that do not heed their context.
func AwaitAll(wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("waiters still wait %v after their context ended", patience)
	}
}

func (o *Outcome) sumUp(all []*waiter, underWay []time.Duration) {
	var waits []time.Duration
	shares := make([]int, len(all))
	for i, w := range all {
		waits = append(waits, w.waits...)
		shares[i] = len(w.waits)
		if len(w.waits) == 0 {
			o.Starved++
		}
		o.OutOfTurn += w.outOfTurn
		o.Errors += w.errors
		if w.err != nil && o.Error == "" {
			o.Error = w.err.Error()
		}
	}
	slices.Sort(waits)
	o.Acquisitions = len(waits)
	o.WaitP50Ms = stats.Milliseconds(stats.Percentile(waits, 50))
	o.WaitP99Ms = stats.Milliseconds(stats.Percentile(waits, 99))
	o.Jain = stats.Jain(shares)
	longest := stats.Percentile(waits, 100)
	for _, d := range underWay {
		longest = max(longest, d)
	}
	o.WaitMaxMs = stats.Milliseconds(longest)
}
