package redisscript

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
)

// moment is how long a client library has to return after the end of its context.
const moment = time.Millisecond

// gated has requests take until the gate is closed, whatever their contexts do.
func gated(t *testing.T) (d *Driver, p *puppet, gate chan struct{}) {
	t.Helper()
	gate = make(chan struct{})
	d, p = answering(t, func(_ context.Context, c script.Call) (any, error) {
		if <-gate; c.Script.Takes {
			return grantedReply(), nil
		}
		return int64(1), nil
	})
	return d, p, gate
}

// A take that nobody waits for any more may be applied at any time: its clean-up goes soon, goes on
// for as long as the take may come, and once more after it.
func TestClaim_aTakeThatIsGivenUpIsUndoneWhenItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, gate := gated(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		l, err := claims.Take(ctx, d, forOneMinute)
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, l, "it may be taken")
		time.Sleep(10 * time.Minute)
		assert.Positive(t, l.Validity(), "the core is to go on")

		released := testwait.Go(func() error { return l.Release(t.Context()) })
		time.Sleep(send.Overdue)
		synctest.Wait()
		require.Equal(t, []*script.Script{script.Take, script.Release}, p.scripts(), "soon")
		close(gate)
		require.NoError(t, <-released)
		require.Equal(t, []*script.Script{script.Take, script.Release, script.Release}, p.scripts(), "and after it")
	})
}

// Takes that nobody waited for, or that failed: in the end it is known whether one may have reached
// the server, and there is something to undo.
func TestClaim_isReleasedIfATakeMayHaveBeenSent(t *testing.T) {
	type try struct {
		fails error
		after time.Duration
	}
	broke, unsent := errors.New("the connection broke"), notSent{errors.New("no connection")}
	for name, c := range map[string]struct {
		tries    []try
		released int
	}{
		"one that was not sent":                 {[]try{{unsent, time.Minute}}, 0},
		"one whose connection broke":            {[]try{{broke, 0}}, 1},
		"one whose connection broke later":      {[]try{{broke, time.Minute}}, 1},
		"the second broke":                      {[]try{{unsent, time.Minute}, {broke, 0}}, 1},
		"the first broke":                       {[]try{{broke, 0}, {unsent, time.Minute}}, 1},
		"the first broke after it was given up": {[]try{{broke, time.Minute}, {unsent, 2 * time.Minute}}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			released, takes := 0, 0
			d, _ := answering(t, func(_ context.Context, call script.Call) (any, error) {
				if call.Script == script.Release {
					released++
					return int64(1), nil
				}
				now := c.tries[takes]
				takes++
				time.Sleep(now.after)
				return nil, now.fails
			})
			l := d.Claim(forOneMinute)
			for _, now := range c.tries {
				began := time.Now()
				_, err := l.Ask(t.Context())
				if now.after == 0 {
					require.ErrorIs(t, err, now.fails, name)
				} else {
					require.ErrorIs(t, err, send.ErrNoAnswer, name)
					assert.Equal(t, 30*time.Second+moment, time.Since(began), "half of the TTL, also without the end of a context")
				}
				time.Sleep(5 * time.Minute)
			}
			require.NoError(t, l.Release(t.Context()), name)
			assert.Equal(t, c.released, released, name)
		})
	}
}

// A waiter whose latest request was given up unsent stands in the queue all the same, by an earlier one.
func TestClaim_aWaiterThatIsKnownIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *puppet
		d, _ := wired(t, func(ctx context.Context, c script.Call) (any, error) {
			switch {
			case c.Script == script.Release:
				return int64(1), nil
			case len(p.scripts()) == 1:
				return heldReply(7), nil // for a minute, after which it looks
			}
			<-ctx.Done() // in vain, for a connection
			time.Sleep(2 * moment)
			return nil, notSent{ctx.Err()}
		})
		p = d.runner.(*puppet)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.ErrorIs(t, <-queued(ctx, d, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, []*script.Script{script.Take, script.Take, script.Release}, p.scripts())
	})
}

// A client library that ignores contexts may still be asking. Nothing more is sent until that has
// ended.
func TestAsk_waitsForTheRequestThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, gate := gated(t)
		c := d.Claim(driver.Request{Name: "x", TTL: time.Hour, Wake: func() {}})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			_, err := c.Ask(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.LessOrEqual(t, time.Since(began), time.Second+moment)
			cancel()
			assert.Len(t, p.scripts(), 1)
		}
		time.AfterFunc(time.Second, func() { close(gate) })
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		assert.Len(t, p.scripts(), 2)
	})
}

// Every call returns soon after its context ends, whatever the client library does.
func TestClaim_everyCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, gate := gated(t)
		l := d.Claim(driver.Request{Name: "x", TTL: time.Hour}).(*claim)
		l.there = true
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		taking, err := claims.Take(soon, d, forOneMinute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		p.scans = func() ([]Scan, error) {
			return []Scan{func(context.Context, uint64, string) ([]string, uint64, error) { return []string{"{x}"}, 0, nil }}, nil
		}
		ignoring := driverOf(t, &puppet{scans: func() ([]Scan, error) { <-gate; return nil, nil }})
		for name, call := range map[string]func(context.Context) error{
			"Extend":    func(ctx context.Context) error { return l.Extend(ctx, time.Hour) },
			"ExtendAll": func(ctx context.Context) error { return d.ExtendAll(ctx, []driver.Claim{l, l}, time.Hour)[1] },
			"Release":   func(ctx context.Context) error { return l.Release(ctx) },
			"Release, of a take that is under way": func(ctx context.Context) error {
				err := taking.Release(ctx)
				require.ErrorIs(t, err, send.ErrNoAnswer)
				require.NotErrorIs(t, err, locker.ErrLost)
				return ctx.Err()
			},
			"Raise":   func(ctx context.Context) error { return l.Raise(ctx, 7) },
			"Inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, "x"); return err },
			"List":    func(ctx context.Context) error { _, err := d.List("x")(ctx); return err },
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
		close(gate)
	})
}

// leasesOf are of two names, and of a Driver whose server says a from then on.
func leasesOf(t *testing.T, n int, a answer) (*Driver, *puppet, []driver.Claim) {
	t.Helper()
	d, p := answering(t, replies([]any{int64(script.Granted), int64(7), nowMicro(), int64(0)}, nil))
	leases := make([]driver.Claim, n)
	for i := range leases {
		var err error
		leases[i], err = claims.Take(t.Context(), d, driver.Request{Name: strconv.Itoa(i % 2), TTL: time.Second})
		require.NoError(t, err)
	}
	p.answer, p.sent, p.batches = a, nil, nil
	return d, p, leases
}

func TestExtendAll_isAScriptForEachLockAndAPipelineForMany(t *testing.T) {
	const n = 2*mostExtensions + 1
	d, p, leases := leasesOf(t, n, replies(int64(1), nil))
	for i, err := range d.ExtendAll(t.Context(), leases, time.Hour) {
		require.NoError(t, err, i)
		require.Greater(t, leases[i].Validity(), 59*time.Minute)
	}
	assert.Equal(t, []int{mostExtensions, mostExtensions, 1}, p.batches)
	for i, c := range p.sent {
		l := leases[i].(*claim)
		require.Equal(t, script.Call{Script: script.Extend, Keys: l.Keys[:1], Args: []any{l.Owner, script.Expiry(time.Hour)}}, c)
	}
	assert.Empty(t, d.ExtendAll(t.Context(), nil, time.Hour))
}

func TestExtendAll_eachLockHasItsOwnOutcome(t *testing.T) {
	boom := errors.New("WRONGTYPE")
	outcomes := []script.Reply{{Value: int64(1)}, {Value: int64(0)}, {Err: boom}}
	d, p, leases := leasesOf(t, 3, func(context.Context, script.Call) (any, error) {
		next := outcomes[0]
		outcomes = outcomes[1:]
		return next.Value, next.Err
	})
	errs := d.ExtendAll(t.Context(), leases, time.Minute)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], locker.ErrLost)
	require.ErrorIs(t, errs[2], boom)
	assert.Equal(t, []int{3}, p.batches)
	assert.Greater(t, leases[0].Validity(), 59*time.Second)
	assert.LessOrEqual(t, leases[1].Validity(), time.Second)
	assert.LessOrEqual(t, leases[2].Validity(), time.Second)
}

// Which script extends a lease is decided by what it is, also among others.
func TestExtendAll_ofShares(t *testing.T) {
	d, p := answering(t, skewed(new(time.Duration)))
	var leases []driver.Claim
	for _, shared := range []bool{true, false, false} {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: time.Second, Shared: shared})
		require.NoError(t, err)
		leases = append(leases, l)
	}
	p.answer = replies(int64(1), nil)
	require.NoError(t, leases[2].(driver.Downgrader).Downgrade(t.Context()))
	p.sent = nil
	require.Equal(t, make([]error, 3), d.ExtendAll(t.Context(), leases, time.Second))
	assert.Equal(t, []*script.Script{script.ExtendShared, script.Extend, script.ExtendShared}, p.scripts())
}
