package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// Release implements [locker.Lease]. A tenure is over when a majority has released it, an attempt that
// failed when no node is left that has something of it. The other nodes are asked again in the
// background, until they answer or the TTL has passed.
func (l *lease) Release(ctx context.Context) error {
	if err := l.driver.begin(); err != nil {
		return err
	}
	defer l.driver.work.Done()
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	var err error
	if interrupted := l.await(ctx, func() bool { return l.released(&err) }); interrupted != nil {
		return interrupted
	}
	return err
}

// end has every node that has something of the lease, or comes to have it, give it back. The caller
// holds l.mu.
func (l *lease) end() {
	if !l.over {
		l.over, l.freeBy = true, clock.Now().Add(l.req.TTL)
	}
	for i := range l.seats {
		l.free(i)
	}
}

// released says whether it is known how the release goes, and sets err. The caller holds l.mu.
func (l *lease) released(err *error) bool {
	var freed, without, waiting int
	for i := range l.seats {
		switch s := &l.seats[i]; {
		case s.freed:
			freed++
		case s.free():
			without++
		case s.waiting():
			waiting++
		}
	}
	n := len(l.seats)
	quorum := majority(n)
	tenure := l.token != 0
	switch {
	case tenure && freed >= quorum, !tenure && freed+without == n:
		*err = nil
	case tenure && without > n-quorum:
		*err = locker.ErrLost
	case waiting > 0:
		return false
	default:
		*err = &Error{Votes: l.releaseVotes()}
	}
	return true
}

// releaseVotes is what each node says to a release. The caller holds l.mu.
func (l *lease) releaseVotes() []Vote {
	votes := make([]error, len(l.seats))
	for i := range l.seats {
		switch s := &l.seats[i]; {
		case s.freed:
		case s.free():
			votes[i] = errAbsent
		case s.err == nil:
			votes[i] = errWaiting
		default:
			votes[i] = s.err
		}
	}
	return l.name(votes)
}

// Pauses between two releases to a node that fails.
const (
	shortPause = 20 * time.Millisecond
	longPause  = time.Second
)

// free releases what a node has. The caller holds l.mu.
func (l *lease) free(i int) {
	s, ours := &l.seats[i], l.seats[i].lease
	if ours == nil || s.freed || s.freeing {
		return
	}
	s.freeing, s.late, s.err = true, false, nil
	l.driver.call(context.Background(), l.driver.nodes[i], l.timeout(), ours.Release, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.freeing, s.late, s.err = false, false, err
		switch {
		case err == nil:
			s.freed = true
		case errors.Is(err, locker.ErrLost):
			s.lease = nil
		default:
			l.freeLater(i)
		}
		l.changed()
	}, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.late, s.err = true, err
		l.changed()
	})
}

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
		l.free(i)
	})
}
