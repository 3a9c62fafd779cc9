package redisscript

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/redisscript/wait"
	"github.com/go-locker/locker/internal/test/claims"
)

// moment is how long a client library has to return after the end of its context.
const moment = time.Millisecond

// gated is a Runner whose requests take until the test lets them go on, whatever their contexts do.
type gated struct {
	puppet

	gate chan struct{} // a value lets one go on; closed: all
	mu   sync.Mutex
	sent []*script.Script
}

func newGated() *gated { return &gated{gate: make(chan struct{})} }

func (g *gated) Scans(context.Context) ([]Scan, error) {
	return []Scan{func(context.Context, uint64, string) ([]string, uint64, error) { return []string{"{x}"}, 0, nil }}, nil
}

func (g *gated) Run(_ context.Context, calls []script.Call, replies []script.Reply) {
	g.mu.Lock()
	g.sent = append(g.sent, calls[0].Script)
	g.mu.Unlock()
	<-g.gate
	for i, c := range calls {
		if replies[i].Value = any(int64(1)); c.Script.Takes {
			replies[i].Value = grantedReply()
		}
	}
}

// all returns what was sent so far.
func (g *gated) all() []*script.Script {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent)
}

// A take that nobody waits for any more may be applied at any time: its clean-up goes soon, goes on for as long
// as the take may come, and once more after it.
func TestClaim_aTakeThatIsGivenUpIsUndoneWhenItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, l, "it may be taken")
		time.Sleep(time.Hour)
		assert.Positive(t, l.Validity(), "the core is to go on")

		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		time.Sleep(send.Overdue)
		synctest.Wait()
		require.Equal(t, []*script.Script{script.Take, script.Release}, g.all(), "soon")
		close(g.gate)
		require.NoError(t, <-released)
		require.Equal(t, []*script.Script{script.Take, script.Release, script.Release}, g.all(), "and after it")
		require.NoError(t, d.Close(noClient))
	})
}

// A take that nobody waited for has not reached the server, as is known in the end: there is nothing to undo.
func TestClaim_aTakeThatWasNeverSentIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, released := make(chan struct{}), 0
		p := &puppet{run: func(_ context.Context, s *script.Script, _ string) (any, error) {
			if s == script.Release {
				released++
				return int64(1), nil
			}
			<-fails
			return nil, notSent{errors.New("no connection")}
		}}
		d := NewDriver(p)
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, send.ErrNoAnswer)
		close(fails)
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
		assert.Zero(t, released)
		require.NoError(t, d.Close(noClient))
	})
}

// Of two takes the first has not reached the server, and the second may have: there is something to undo.
func TestClaim_aTakeAfterOneThatWasNeverSentIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, takes, released := make(chan struct{}), 0, 0
		p := &puppet{run: func(_ context.Context, s *script.Script, _ string) (any, error) {
			if s == script.Release {
				released++
				return int64(1), nil
			}
			if takes++; takes == 1 {
				<-fails
				return nil, notSent{errors.New("no connection")}
			}
			return nil, errors.New("the connection broke")
		}}
		d := NewDriver(p)
		c := d.Claim(driver.Request{Name: "x", TTL: time.Minute})
		_, err := c.Ask(t.Context())
		require.ErrorIs(t, err, send.ErrNoAnswer)
		close(fails)
		_, err = c.Ask(t.Context())
		require.ErrorContains(t, err, "the connection broke")
		require.NoError(t, c.Release(t.Context()))
		assert.Equal(t, 1, released)
		require.NoError(t, d.Close(noClient))
	})
}

// A Release whose context ends returns, with an error.
func TestClaim_aReleaseHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		again, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err = l.Release(again)
		require.Error(t, err)
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.LessOrEqual(t, time.Since(start), time.Second+moment)
		close(g.gate)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, d.Close(noClient))
	})
}

// A waiter whose latest request was given up unsent stands in the queue all the same, by an earlier one.
func TestClaim_aWaiterThatIsKnownIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, released atomic.Int32
		w := newWire()
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
		p.run = func(ctx context.Context, s *script.Script, _ string) (any, error) {
			if s == script.Release {
				released.Add(1)
				return int64(1), nil
			}
			if asked.Add(1) == 1 {
				return heldReply(7), nil // for a minute, after which it looks
			}
			<-ctx.Done() // in vain, for a connection
			time.Sleep(2 * moment)
			return nil, notSent{ctx.Err()}
		}
		d := NewDriver(p)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		l, err := claims.Wait(ctx, d, driver.Request{Name: "x", TTL: time.Hour}, func(error) {})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotNil(t, l)
		assert.EqualValues(t, 2, asked.Load())
		assert.EqualValues(t, 1, released.Load())
		require.NoError(t, d.Close(noClient))
	})
}

// A take that is not answered is given up after half of its TTL, also without the end of a context.
func TestClaim_aTakeEndsInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		began := time.Now()
		_, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: 6 * time.Second})
		require.ErrorIs(t, err, send.ErrNoAnswer)
		assert.Equal(t, 3*time.Second+moment, time.Since(began))
		close(g.gate)
		require.NoError(t, d.Close(noClient))
	})
}

// A client library that ignores contexts may still be asking. Nothing more is sent until that has
// ended.
func TestAsk_waitsForTheRequestThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		c := d.Claim(driver.Request{Name: "x", TTL: time.Hour, Wake: func() {}})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			_, err := c.Ask(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.LessOrEqual(t, time.Since(began), time.Second+moment)
			cancel()
			assert.Len(t, g.all(), 1)
		}
		time.AfterFunc(time.Second, func() { close(g.gate) })
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		assert.Len(t, g.all(), 2)
		require.NoError(t, d.Close(noClient))
	})
}

// Every call returns soon after its context ends, whatever the client library does.
func TestClaim_everyCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		l, ignoring := d.Claim(driver.Request{Name: "x", TTL: time.Hour}).(*claim), NewDriver(&stuck{g})
		l.there = true
		for name, call := range map[string]func(context.Context) error{
			"Extend":    func(ctx context.Context) error { return l.Extend(ctx, time.Hour) },
			"ExtendAll": func(ctx context.Context) error { return d.ExtendAll(ctx, []driver.Lease{l, l}, time.Hour)[1] },
			"Release":   func(ctx context.Context) error { return l.Release(ctx) },
			"Raise":     func(ctx context.Context) error { return l.Raise(ctx, 7) },
			"Inspect":   func(ctx context.Context) error { _, err := d.Inspect(ctx, "x"); return err },
			"List":      func(ctx context.Context) error { _, err := d.List("x")(ctx); return err },
			"List, of a library that ignores contexts": func(ctx context.Context) error {
				_, err := ignoring.List("x")(ctx)
				return err
			},
			"ForceRelease": func(ctx context.Context) error {
				return d.ForceRelease(ctx, "x", driver.State{Held: true, Token: 7})
			},
			"Warnings": func(ctx context.Context) error { _, err := d.Warnings(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
			assert.LessOrEqual(t, time.Since(began), time.Second+moment, name)
			cancel()
		}
		close(g.gate)
		require.NoError(t, d.Close(noClient))
		require.NoError(t, ignoring.Close(noClient))
	})
}

// stuck is a client library whose SCAN answers when the gate is open, whatever its context does.
type stuck struct{ *gated }

func (s *stuck) Scans(context.Context) ([]Scan, error) { <-s.gate; return nil, nil }
