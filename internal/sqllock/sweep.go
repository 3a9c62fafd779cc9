package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	sweepEvery = time.Minute
	sweepLimit = 10 * time.Second

	// Idle is how long an unused row stays.
	Idle = time.Hour
)

// Sweeper schedules the deletion of unused rows: a minute after the last sweep, or sooner if this
// Driver has made many rows. Each sweep scans one page of keys, and the next continues after it, so
// its cost does not depend on the size of the table.
//
// The first sweep is due at a random time within a minute, and starts at a random key, so that
// among programs that live for seconds some sweep, and not all of them the same rows.
type Sweeper struct {
	Made atomic.Int64 // rows made since the last sweep
	From []byte       // the key behind which the next sweep begins; owned by the sweep

	page   int64
	due    atomic.Int64 // nanoseconds since epoch
	cancel context.CancelFunc
	ctx    context.Context

	mu      sync.Mutex
	running bool
	work    sync.WaitGroup
}

var epoch = time.Now()

// NewSweeper makes the Sweeper of a Driver whose sweeps look at page rows each.
func NewSweeper(page int64) *Sweeper {
	s := &Sweeper{From: make([]byte, sha256.Size), page: page}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	_, _ = rand.Read(s.From) // never fails
	s.due.Store(int64(time.Since(epoch) + mrand.N(sweepEvery)))
	return s
}

// Due returns the time until the next scheduled sweep. Many new rows may bring it forward.
func (s *Sweeper) Due() time.Duration { return time.Duration(s.due.Load()) - time.Since(epoch) }

// IfDue runs a sweep that is due in a goroutine of its own: a take does not wait for it. A sweep that
// fails is not repeated before the next one is due.
func (s *Sweeper) IfDue(sweep func(context.Context) error) {
	if s.Made.Load() < s.page/10 && s.Due() > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.ctx.Err() != nil {
		return
	}
	s.running = true
	s.Made.Store(0)
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, sweepLimit)
		defer cancel()
		_ = sweep(ctx)
		s.due.Store(int64(time.Since(epoch) + sweepEvery))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = false
	})
}

// Close stops the running sweep, and starts no other.
func (s *Sweeper) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.work.Wait()
}

// Sweep deletes those rows of the next page that nobody has held or waited for during idleFor.
// Tokens must not fall when a name is used again, so the row with the empty key is the high-water
// mark of deleted rows: it is raised to the largest of their tokens before the first is deleted,
// and a new row starts above it. Each delete compares the token that was read, so a row in use
// again stays. Sweep also deletes rows of waiters whose heartbeats have stopped, and shortens holds
// from before the clock started anew. Stopped anywhere, it leaves rows for the next sweep.
func (d *Driver) Sweep(ctx context.Context, idleFor time.Duration) error {
	d.sweeping.Lock() // tests sweep, too
	defer d.sweeping.Unlock()
	type lock struct {
		key                         []byte
		token, until, ttl, released int64
		idle                        bool
	}
	micros := idleFor.Microseconds()
	locks, err := query(ctx, d, func(l *lock) []any { return []any{&l.key, &l.token, &l.until, &l.ttl, &l.released, &l.idle} },
		idle, micros, micros, d.sweeper.From, pageRows)
	if err != nil {
		return err
	}
	d.sweeper.From = []byte{} // the beginning
	if len(locks) == pageRows {
		d.sweeper.From = locks[pageRows-1].key
	}
	exec := func(statement string, args ...any) {
		if err == nil {
			_, err = d.exec(ctx, d.pools.Ask, d.Lax, statement, args...)
		}
	}
	for _, l := range locks {
		if l.released == 0 && d.outlasts(l.until, l.ttl) {
			exec(shorten, l.key, l.until)
		}
	}
	locks = slices.DeleteFunc(locks, func(l lock) bool { return !l.idle })
	if len(locks) > 0 {
		exec(mark)
		exec(raise, slices.MaxFunc(locks, func(a, b lock) int { return cmp.Compare(a.token, b.token) }).token)
	}
	for _, l := range locks {
		exec(deleteIdle, l.key, l.token, micros, micros)
	}
	type waiter struct {
		key    []byte
		ticket int64
		owner  []byte
	}
	died, failed := query(ctx, d, func(w *waiter) []any { return []any{&w.key, &w.ticket, &w.owner} }, dead, pageRows)
	for _, w := range died {
		exec(leave, w.key, w.ticket, w.owner)
	}
	return errors.Join(err, failed)
}
