package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/quorum"
)

// Release implements [driver.Lease]. A hold is over when a majority has released it, an attempt that
// failed when no node is left that has something of it. The other nodes are asked again in the
// background, until they answer or the TTL has passed.
func (l *lease) Release(ctx context.Context) error {
	if !l.asked {
		return nil
	}
	if err := l.driver.begin(); err != nil {
		return err
	}
	defer l.driver.work.Done()
	l.abandon(ctx)
	l.mu.Lock()
	w := &waiter{decide: l.released}
	l.watch(w)
	l.mu.Unlock()
	return l.wait(ctx, w)
}

// end has every node that has something of the lease, or comes to have it, give it back. The caller holds l.mu.
func (l *lease) end() {
	if !l.over {
		l.over, l.freeBy = true, clock.Now().Add(l.req.TTL)
	}
	calls := make([]call, 0, len(l.seats))
	for i := range l.seats {
		if s := &l.seats[i]; s.place != nil && !s.asking && s.place.Known() {
			s.lease, s.place, s.unmet = s.place, nil, true
		}
		calls = l.free(calls, i)
	}
	l.send(calls)
}

// released reports whether it is known how the release goes. The caller holds l.mu.
func (l *lease) released() (over bool, err error) {
	t := tally{nodes: len(l.seats)}
	for i := range l.seats {
		s := &l.seats[i]
		t.add(s.freed, s.waiting(), s.joins || !s.busy() && !s.freed)
	}
	switch hold := l.token != 0; {
	case hold && t.lost():
		return true, driver.ErrLost
	case hold && t.succeeded(), !hold && !l.busy():
		return true, nil
	case t.waiting > 0:
		return false, nil
	default:
		return true, l.driver.disagreement(l.vote)
	}
}

// free adds the call that releases what node i has, unless it has nothing, or one is under way. The caller holds l.mu.
func (l *lease) free(calls []call, i int) []call {
	s := &l.seats[i]
	if s.lease == nil || s.freeing {
		return calls
	}
	s.freeing, s.late, s.err = true, false, nil
	s.release = releaseRequest{lease: l, i: i, ours: s.lease}
	return append(calls, l.call(i, &s.release))
}

// releaseRequest asks node i to release what it has.
type releaseRequest struct {
	lease *lease
	i     int
	ours  quorum.Candidate
}

func (f *releaseRequest) send(ctx context.Context) error { return f.ours.Release(ctx) }

func (f *releaseRequest) heard(err error, over bool) {
	l := f.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[f.i]
	s.freeing, s.late, s.err = !over, !over, err
	switch {
	case err == nil:
		s.lease, s.freed = nil, !s.unmet
	case errors.Is(err, driver.ErrLost):
		s.lease = nil
	case over:
		l.freeLater(f.i)
	}
	l.changed()
}

// Pauses between two releases to a node that fails.
const (
	shortPause = 20 * time.Millisecond
	longPause  = time.Second
)

// freeLater tries again after a pause, for as long as the node may have the lock. The caller holds l.mu.
func (l *lease) freeLater(i int) {
	s := &l.seats[i]
	if s.pausing {
		return
	}
	s.pause = min(max(2*s.pause, shortPause), longPause)
	if clock.Now().Add(s.pause).After(l.freeBy) {
		return
	}
	s.pausing = true
	time.AfterFunc(s.pause, func() {
		if l.driver.begin() != nil {
			return
		}
		defer l.driver.work.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		s.pausing = false
		l.send(l.free(nil, i))
	})
}
