package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Release implements [driver.Lease]. A tenure is over when a majority has released it, an attempt that
// failed when no node is left that has something of it. The other nodes are asked again in the
// background, until they answer or the TTL has passed.
func (l *lease) Release(ctx context.Context) error {
	if err := l.driver.begin(); err != nil {
		return err
	}
	defer l.driver.work.Done()
	l.mu.Lock()
	l.end(ctx)
	var err error
	released := l.watch(func() bool { return l.released(&err) })
	l.mu.Unlock()
	if interrupted := l.wait(ctx, released); interrupted != nil {
		return interrupted
	}
	return err
}

// end has every node that has something of the lease, or comes to have it, give it back: in requests with the
// values of ctx, whose end does not concern them. The caller holds l.mu.
func (l *lease) end(ctx context.Context) {
	if !l.over {
		l.over, l.freeBy = true, clock.Now().Add(l.req.TTL)
	}
	r := l.driver.round(ctx, l.timeout())
	for i := range l.seats {
		l.free(r, i)
	}
	r.sent()
}

// released says whether it is known how the release goes, and sets err. The caller holds l.mu.
func (l *lease) released(err *error) bool {
	free, freed, waiting, without, doubtful := l.returned()
	n := len(l.seats)
	quorum := majority(n)
	tenure := l.token != 0
	switch {
	case tenure && without > n-quorum:
		*err = driver.ErrLost
	case tenure && freed >= quorum && without+doubtful <= n-quorum, !tenure && free == n:
		*err = nil
	case waiting > 0:
		return false
	default:
		*err = &Error{Votes: l.releaseVotes()}
	}
	return true
}

// returned says how many nodes have nothing of the lease any more, how many have confirmed its release, how many have yet to
// answer, and, as [extension.count] does, how many had it not all the time and how many more may not have had it.
func (l *lease) returned() (free, freed, waiting, without, doubtful int) {
	for i := range l.seats {
		s := &l.seats[i]
		if s.free() {
			free++
		}
		if s.freed {
			freed++
		}
		if s.waiting() {
			waiting++
		}
		switch {
		case s.joins, s.free() && !s.freed:
			without++
		case s.waiting():
			doubtful++
		}
	}
	return free, freed, waiting, without, doubtful
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

// freeOne releases what one node has. The caller holds l.mu.
func (l *lease) freeOne(i int) {
	r := l.driver.round(context.Background(), l.timeout())
	l.free(r, i)
	r.sent()
}

// free releases what a node has. The caller holds l.mu.
func (l *lease) free(r *round, i int) {
	s, ours := &l.seats[i], l.seats[i].lease
	if ours == nil || s.freed || s.freeing {
		return
	}
	s.freeing, s.late, s.err = true, false, nil
	r.call(l.driver.nodes[i], &releaseMessage{lease: l, i: i, ours: ours})
}

// releaseMessage asks node i to release what it has.
type releaseMessage struct {
	lease *lease
	i     int
	ours  driver.RaisableLease
}

func (f *releaseMessage) send(ctx context.Context) error { return f.ours.Release(ctx) }

func (f *releaseMessage) missed(err error) {
	l := f.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seats[f.i].late, l.seats[f.i].err = true, err
	l.changed()
}

func (f *releaseMessage) answered(err error) {
	l := f.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seats[f.i]
	s.freeing, s.late, s.err = false, false, err
	switch {
	case err == nil:
		s.freed = true
	case errors.Is(err, driver.ErrLost):
		s.lease = nil
	default:
		l.freeLater(f.i)
	}
	l.changed()
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
		l.freeOne(i)
	})
}
