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

// A sweep looks at pageRows rows, and the next one goes on from there. It is due a minute after the
// last, and sooner where this Driver has made many rows.
const (
	sweepEvery = time.Minute
	sweepLimit = 10 * time.Second

	// Idle is for how long a row stays that nobody uses.
	Idle = time.Hour
)

// sweeper has a Driver delete the rows of locks that nobody uses.
type sweeper struct {
	made    atomic.Int64 // rows, since the last sweep
	due     atomic.Int64 // nanoseconds since epoch
	running atomic.Bool

	mu   sync.Mutex
	from []byte // the key after which the next sweep begins
}

var epoch = time.Now()

// begin has the first sweep be due within a minute, and begin anywhere: of programs that live for
// less than that some sweep, too, and not all of them the same rows.
func (s *sweeper) begin() {
	s.from = make([]byte, sha256.Size)
	_, _ = rand.Read(s.from) // never fails
	s.due.Store(int64(time.Since(epoch) + mrand.N(sweepEvery)))
}

// sweepIfDue sweeps in a goroutine of its own, so that a take does not wait for it.
func (d *Driver) sweepIfDue() {
	s := &d.sweeper
	if s.made.Load() < pageRows/10 && int64(time.Since(epoch)) < s.due.Load() || !s.running.CompareAndSwap(false, true) {
		return
	}
	s.made.Store(0)
	s.due.Store(int64(time.Since(epoch) + sweepEvery))
	d.work.Go(func() {
		defer s.running.Store(false)
		ctx, cancel := context.WithTimeout(d.ctx, sweepLimit)
		defer cancel()
		_ = d.Sweep(ctx, Idle) // the next one tries again
	})
}

// Sweep deletes, of the next rows, those that nobody has held or waited for during idleFor. The row
// with the empty key keeps the largest of their tokens, from before they are deleted. It also
// deletes the rows of waiters that have died, and shortens holds from before the clock began anew.
func (d *Driver) Sweep(ctx context.Context, idleFor time.Duration) error {
	d.sweeper.mu.Lock() // tests sweep, too
	defer d.sweeper.mu.Unlock()
	type lock struct {
		key                         []byte
		token, until, ttl, released int64
		idle                        bool
	}
	micros := idleFor.Microseconds()
	locks, err := query(ctx, d, func(l *lock) []any { return []any{&l.key, &l.token, &l.until, &l.ttl, &l.released, &l.idle} },
		idle, micros, micros, d.sweeper.from, pageRows)
	if err != nil {
		return err
	}
	d.sweeper.from = []byte{} // the beginning
	if len(locks) == pageRows {
		d.sweeper.from = locks[pageRows-1].key
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
