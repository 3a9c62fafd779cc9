package sessions

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

const ttl = 10 * time.Second

type lease struct{ lost atomic.Int64 }

// fake is a session whose server grants everything unless it is told otherwise.
type fake struct {
	*Session[*lease]

	granting chan struct{} // Start waits until it is closed, unless it is nil
	refusal  error         // of Start

	mu          sync.Mutex
	unreachable bool
	renewed     time.Time
	renewals    int
	stopped     bool
	watched     []*lease
}

func (f *fake) Watch(leases []*lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = append(f.watched, leases...)
}

func (f *fake) Start() error {
	if f.granting != nil {
		<-f.granting
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = clock.Now()
	return f.refusal
}

func (f *fake) Due() (renew, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewed.Add(ttl / 2), f.renewed.Add(ttl)
}

func (f *fake) Renew() {
	f.mu.Lock()
	f.renewals++
	unreachable := f.unreachable
	if !unreachable {
		f.renewed = clock.Now()
	}
	f.mu.Unlock()
	if unreachable {
		time.Sleep(ttl / 20)
	}
}

func (f *fake) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
}

// at reports what has become of the session when d has passed.
func (f *fake) at(d time.Duration) (renewals int, ended, stopped bool) {
	time.Sleep(d)
	synctest.Wait()
	ended = f.Ended()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewals, ended, f.stopped
}

func (f *fake) cutOff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreachable = true
}

type pool struct {
	*Pool[*fake, *lease]
	t *testing.T
}

// test calls f in a bubble, with a Pool that is closed in the end.
func test(t *testing.T, f func(t *testing.T, p pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := pool{NewPool[*fake](), t}
		defer p.Close()
		f(t, p)
	})
}

// get returns the session for ttl. If it makes one, prepare is called before it starts.
func (p pool) get(prepare ...func(*fake)) *fake {
	s, err := p.Get(ttl, func() *fake {
		f := p.make()
		for _, prepare := range prepare {
			prepare(f)
		}
		return f
	})
	require.NoError(p.t, err)
	return s
}

func (p pool) make() *fake {
	f := new(fake)
	f.Session = New[*lease](p.Context(), ttl, f)
	return f
}

// joined returns the session for ttl, and a user of it.
func (p pool) joined() (*fake, *lease) {
	s, l := p.get(), new(lease)
	require.NoError(p.t, s.Wait(p.t.Context()))
	require.True(p.t, s.Join(l))
	s.Notify(l, func() { l.lost.Add(1) })
	return s, l
}

func TestSession_isRenewedAsLongAsItIsUsed(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		renewals, ended, _ := s.at(time.Hour)
		assert.False(t, ended)
		assert.InDelta(t, time.Hour/(ttl/2), renewals, 1)
		assert.Equal(t, []*lease{l}, s.Users())
		assert.Zero(t, s.Unused())
		other, _ := p.joined()
		assert.Same(t, s, other)
		assert.Zero(t, l.lost.Load())
	})
}

func TestSession_endsAMinuteAfterItsLastUser(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		s.Leave(l)
		_, ended, _ := s.at(KeepUnused - time.Second)
		assert.False(t, ended)
		assert.Equal(t, KeepUnused-time.Second, s.Unused())
		_, ended, stopped := s.at(KeepUnused)
		assert.True(t, ended)
		assert.True(t, stopped)
		assert.False(t, s.Join(l))
		assert.Zero(t, l.lost.Load(), "it had left")
		again, _ := p.joined()
		assert.NotSame(t, s, again)
	})
}

func TestSession_endsWhenItWasNotRenewedInTime(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		s.cutOff()
		time.Sleep(ttl - time.Millisecond)
		assert.Equal(t, time.Millisecond, s.Left())
		assert.Zero(t, l.lost.Load())
		renewals, ended, stopped := s.at(ttl / 10)
		assert.True(t, ended)
		assert.True(t, stopped)
		assert.LessOrEqual(t, renewals, 11)
		assert.Zero(t, s.Left())
		assert.EqualValues(t, 1, l.lost.Load())
		assert.Equal(t, []*lease{l}, s.Users(), "Stop may have to remove something of it")
		s.Notify(l, func() { l.lost.Add(1) })
		assert.EqualValues(t, 2, l.lost.Load(), "at once")
		require.Error(t, s.Context().Err())
	})
}

// Nobody loses anything by it, and it may be of use again.
func TestSession_withoutUsersOutlivesAnOutage(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s := p.get()
		s.cutOff()
		_, ended, _ := s.at(ttl * 2)
		assert.False(t, ended)
		assert.False(t, s.Join(new(lease)), "it is not known to last")
		assert.Empty(t, s.Users())
	})
}

func TestSession_thatRetiredIsReplacedAndEndsAfterItsLastUser(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		s.Retire()
		_, ended, _ := s.at(time.Hour)
		assert.False(t, ended)
		assert.False(t, s.Join(new(lease)))
		second, _ := p.joined()
		assert.NotSame(t, s, second)
		s.Leave(l)
		_, ended, stopped := s.at(0)
		assert.True(t, ended)
		assert.True(t, stopped)
		third, _ := p.joined()
		assert.Same(t, second, third, "the first is forgotten, and nothing else")
	})
}

// A server answers that it is gone.
func TestEnd_tellsTheUsersOnce(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		s.End()
		s.End()
		assert.False(t, s.Join(new(lease)), "nobody joins what has ended")
		_, _, stopped := s.at(0)
		assert.True(t, stopped)
		assert.EqualValues(t, 1, l.lost.Load())
	})
}

// A short hold costs the server nothing more. The end of one that lasts is told, to its lease
// alone.
func TestWatch_isForLeasesThatLast(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		for range 10 {
			_, short := p.joined()
			time.Sleep(WatchAfter - time.Millisecond)
			s.Leave(short)
		}
		synctest.Wait()
		assert.Equal(t, []*lease{l}, s.watched)
		_, other := p.joined()
		s.ReportLost(l)
		s.ReportLost(l)
		assert.EqualValues(t, 1, l.lost.Load())
		s.at(2 * WatchAfter)
		assert.Equal(t, []*lease{l, other}, s.watched)
		assert.Zero(t, other.lost.Load())
		s.Leave(l)
		s.ReportLost(l)
		assert.Equal(t, []*lease{other}, s.Users())
	})
}

func TestNotify_isForUsers(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		s.Leave(l)
		s.Notify(l, func() { l.lost.Add(1) })
		s.End()
		assert.Zero(t, l.lost.Load())
	})
}

func TestWait_endsWithItsContextAndTheSessionIsStartedAllTheSame(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		granting := make(chan struct{})
		s := p.get(func(f *fake) { f.granting = granting })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
		_, ok := p.Any()
		assert.False(t, ok, "it has not started")
		found, err := p.Get(ttl, nil)
		require.NoError(t, err)
		assert.Same(t, s, found)
		close(granting)
		other, _ := p.joined()
		assert.Same(t, s, other)
		started, ok := p.Any()
		assert.True(t, ok)
		assert.Same(t, s, started)
	})
}

func TestStart_thatFailsIsToldToAllWhoWait(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		granting, refusal := make(chan struct{}), errors.New("no")
		s := p.get(func(f *fake) { f.granting, f.refusal = granting, refusal })
		errs := make(chan error)
		for range 2 {
			go func() { errs <- s.Wait(t.Context()) }()
		}
		close(granting)
		require.ErrorIs(t, <-errs, refusal)
		require.ErrorIs(t, <-errs, refusal)
		_, ended, stopped := s.at(0)
		assert.True(t, ended)
		assert.True(t, stopped, "something may be left of it")
		again, _ := p.joined()
		assert.NotSame(t, s, again)
	})
}

func TestAdd_hasASessionFoundByASecondKeyUnlessThatIsTaken(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, _ := p.joined()
		p.Add(2*ttl, s)
		p.Add(2*ttl, p.make())
		found, err := p.Get(2*ttl, nil)
		require.NoError(t, err)
		assert.Same(t, s, found)
		s.End()
		synctest.Wait()
		next := p.make()
		p.Add(2*ttl, next)
		found, err = p.Get(2*ttl, p.make)
		require.NoError(t, err)
		assert.Same(t, next, found, "what has ended takes no key")
		_, err = p.Get(3*ttl, p.make)
		require.NoError(t, err)
		assert.Len(t, p.sessions, 2, "what has ended is dropped")
	})
}

func TestClose_stopsTheSessions(t *testing.T) {
	test(t, func(t *testing.T, p pool) {
		s, l := p.joined()
		p.Close()
		assert.True(t, s.stopped)
		assert.EqualValues(t, 1, l.lost.Load())
		require.Error(t, p.Context().Err())
		_, err := p.Get(ttl, nil)
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}

// A queue is told by a letter for each: w for a writer, s for a share, and S for one that knows the
// token.
func TestState_isOfThoseAtTheHead(t *testing.T) {
	for queue, want := range map[string]struct{ holder, shares, waiters string }{
		"w": {"w", "", ""}, "ww": {"w", "", "w"}, "wsw": {"w", "", "sw"},
		"S": {"", "S", ""}, "sS": {"", "sS", ""}, "Ss": {"", "Ss", ""}, "sSws": {"", "sS", "ws"},
	} {
		var all []Contender
		for who := range strings.SplitSeq(queue, "") {
			c := Contender{Participant: driver.Participant{ID: who}, Shared: who != "w"}
			if who != "s" {
				c.Token = 7
			}
			all = append(all, c)
		}
		ids := func(of []driver.Participant) (all string) {
			for _, p := range of {
				all += p.ID
			}
			return all
		}
		state := State(all)
		assert.Equal(t, want, struct{ holder, shares, waiters string }{state.Holder.ID, ids(state.Shares), ids(state.Waiters)}, queue)
		assert.True(t, state.Held)
		assert.EqualValues(t, 7, state.Token, queue)
	}
	assert.Empty(t, Holders([]Contender{}))
}
