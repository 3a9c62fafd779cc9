package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A sweep looks at sweepRows rows, and the next one goes on from there. It is due a minute after
// the last, and sooner where this Driver has made many rows: it makes one for ten that it looks at.
const (
	sweepEvery = time.Minute
	sweepRows  = 1000
	sweepMade  = sweepRows / 10
	sweepLimit = 10 * time.Second
)

// sweeper has a Driver delete the rows of locks that nobody uses.
type sweeper struct {
	made atomic.Int64 // rows, since the last sweep
	next atomic.Int64 // when a sweep is due, in nanoseconds since epoch
	from []byte

	mu      sync.Mutex
	stop    context.CancelFunc // of the sweep that is under way
	closed  bool
	running sync.WaitGroup
}

var epoch = time.Now()

// begin has the first sweep be due within a minute, and begin anywhere: of programs that live for
// less than that some sweep, too, and not all of them the same rows.
func (s *sweeper) begin() {
	s.from = make([]byte, sha256.Size)
	_, _ = rand.Read(s.from) // never fails
	s.next.Store(int64(time.Since(epoch) + mrand.N(sweepEvery)))
}

func (s *sweeper) rest() { s.next.Store(int64(time.Since(epoch) + sweepEvery)) }

// sweepIfDue sweeps in a goroutine of its own: whoever has just taken a lock does not wait for it.
func (d *backend) sweepIfDue() {
	s := &d.sweeper
	if s.made.Load() < sweepMade && int64(time.Since(epoch)) < s.next.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.stop != nil {
		return
	}
	s.made.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
	s.stop = cancel
	s.running.Go(func() {
		_, _ = d.sweep(ctx) // the next one tries again
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop = nil
		s.rest()
	})
}

// sweep returns how many rows it has deleted.
func (d *backend) sweep(ctx context.Context) (deleted int64, err error) {
	err = d.row(ctx, d.sql.sweep.text, d.sweeper.from, int64(sweepRows), d.idle.Microseconds()).Scan(&d.sweeper.from, &deleted)
	return deleted, err
}

func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}
