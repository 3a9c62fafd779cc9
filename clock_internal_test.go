package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// outside is the world of a machine that can be frozen: a backend, which is also the driver and the
// one claim, and a wall clock. Both go on while the machine is frozen, and its monotonic clock,
// which is the test's, does not.
type outside struct {
	began time.Time

	ttl time.Duration

	mu      sync.Mutex
	ahead   time.Duration   // of the wall clock
	until   time.Time       // the end of the lease, by the clock outside
	sent    []time.Duration // when each request to extend was sent
	reply   time.Duration   // how long an answer takes
	refused int             // which of those requests gets none, counted from 1
	before  time.Duration   // how long before each request the session was confirmed

	released int // requests to release
}

// freeze freezes the machine for d, and sets its wall clock right.
func (o *outside) freeze(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead += d
}

func (o *outside) wall() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead
}

// requests are the times at which a request to extend was sent.
func (o *outside) requests() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.sent)
}

func (o *outside) Claim(req driver.Request) driver.Claim {
	o.ttl = req.TTL
	return o
}

func (o *outside) Ask(context.Context) (time.Duration, error) {
	o.mu.Lock()
	o.until = time.Now().Add(o.ahead + o.ttl)
	o.mu.Unlock()
	time.Sleep(o.reply)
	return 0, nil
}

func (o *outside) Guarantees() Guarantees  { return nil }
func (o *outside) Close() error            { return nil }
func (o *outside) Token() uint64           { return 1 }
func (o *outside) Validity() time.Duration { return o.ttl - o.reply - o.before }

func (o *outside) Release(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released++
	return nil
}

func (o *outside) Extend(_ context.Context, ttl time.Duration) error {
	err := o.extend(ttl)
	time.Sleep(o.reply)
	return err
}

func (o *outside) extend(ttl time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, time.Since(o.began))
	now := time.Now().Add(o.ahead)
	switch {
	case len(o.sent) == o.refused:
		return errors.New("connection refused")
	case !now.Before(o.until):
		return ErrLost
	}
	o.until = now.Add(ttl)
	return nil
}

// frozen runs f in no wall time, with a Client whose TTL is 30 s.
func frozen(t *testing.T, f func(*testing.T, *outside, *Client), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &outside{began: time.Now()}
		c, err := New(o, append([]Option{WithTTL(30 * time.Second)}, opts...)...)
		require.NoError(t, err)
		c.renewer.wall.watch(o.wall)
		f(t, o, c)
		require.NoError(t, c.Close())
	})
}

func hold(t *testing.T, c *Client, opts ...MutexOption) *Hold {
	t.Helper()
	h, err := c.Mutex("x", opts...).Acquire(t.Context())
	require.NoError(t, err)
	return h
}

func TestFrozen_aHoldThatIsOverOutsideIsLostWithinASecond(t *testing.T) {
	var log strings.Builder
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		h := hold(t, c)
		time.Sleep(5500 * time.Millisecond)
		o.freeze(time.Minute)
		resumed := time.Now()
		<-h.Lost()
		assert.LessOrEqual(t, time.Since(resumed), lookAgain, "without a look at the wall clock the next renewal would tell")
		synctest.Wait()
		assert.Contains(t, log.String(), `level=INFO msg="wall clock ahead" ahead=1m0s`)
	}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

func TestFrozen_aHoldThatLastsOutsideIsRenewedAtOnce(t *testing.T) {
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		h := hold(t, c)
		time.Sleep(5500 * time.Millisecond)
		deadline := h.Deadline()
		o.freeze(29*time.Second - 5500*time.Millisecond)
		time.Sleep(lookAgain)
		synctest.Wait()
		require.Equal(t, []time.Duration{6 * time.Second}, o.requests())
		require.NoError(t, h.expireIfDue())
		assert.Greater(t, h.Deadline(), deadline)
		time.Sleep(20 * time.Second)
		assert.Equal(t, []time.Duration{6 * time.Second, 15 * time.Second, 24375 * time.Millisecond}, o.requests(), "and then as ever")
	})
}

// The machine is frozen while a request is under way, and has been seen to have been when the reply
// is read.
func TestFrozen_whileARequestIsUnderWay(t *testing.T) {
	const reply = 3 * time.Second
	for name, ask := range map[string]func(*testing.T, *outside, *Client) *Hold{
		"take": func(t *testing.T, o *outside, c *Client) *Hold {
			o.reply = reply
			return hold(t, c)
		},
		"extend": func(t *testing.T, o *outside, c *Client) *Hold {
			h := hold(t, c)
			time.Sleep(500 * time.Millisecond)
			o.reply = reply
			o.refused = 2 // that of the first look after the resume
			require.NoError(t, h.Extend(t.Context()))
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			frozen(t, func(t *testing.T, o *outside, c *Client) {
				other, err := c.Mutex("other", WithoutRenewal()).Acquire(t.Context()) // has the clock looked at
				require.NoError(t, err)
				time.AfterFunc(1500*time.Millisecond, func() { o.freeze(time.Minute) })
				h := ask(t, o, c)
				answered := time.Now()
				<-h.Lost()
				assert.LessOrEqual(t, time.Since(answered), reply, "a renewal was sent at once, and has brought the answer")
				assert.NoError(t, other.expireIfDue())
			})
		})
	}
}

// A session that was confirmed before a leap of the wall clock, also by the latest extension, is
// renewed after pauses.
func TestFrozen_aSessionConfirmedBeforeIsNotRenewedAgainAndAgain(t *testing.T) {
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		o.before, o.reply = 5*time.Second, time.Millisecond
		h := hold(t, c)
		o.freeze(leap)
		time.Sleep(9 * time.Second)
		assert.LessOrEqual(t, len(o.requests()), 6)
		assert.NoError(t, h.expireIfDue())
	})
}

// What tells nothing of a frozen machine, or is not to be renewed, costs no request.
func TestFrozen_noRequestWithoutNeed(t *testing.T) {
	for name, c := range map[string]struct {
		step time.Duration // of the wall clock, every second
		opts []MutexOption
	}{
		"the wall clock is put right little by little": {step: 20 * time.Millisecond},
		"the wall clock goes back":                     {step: -time.Hour},
		"the hold is not renewed":                      {step: time.Second, opts: []MutexOption{WithoutRenewal()}},
	} {
		t.Run(name, func(t *testing.T) {
			frozen(t, func(t *testing.T, o *outside, client *Client) {
				h := hold(t, client, c.opts...)
				for range 9 {
					o.freeze(c.step)
					time.Sleep(time.Second)
				}
				assert.Empty(t, o.requests())
				assert.NoError(t, h.expireIfDue(), "no wall clock ends a hold")
			})
		})
	}
}

// reserve is that of the context that stopped makes.
const reserve = 2 * time.Second

// stopped runs f, with a context of the hold of m, in a process whose timers do not fire any more.
func stopped(t *testing.T, f func(t *testing.T, o *outside, m *Mutex, ctx context.Context)) {
	t.Helper()
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		m := c.Mutex("x", WithoutRenewal())
		require.NoError(t, m.Lock(t.Context()))
		ctx, cancel := m.Hold().Context(t.Context(), reserve)
		defer cancel()
		c.renewer.timer.Stop()
		f(t, o, m, ctx)
	})
}

// A process that was stopped looks, when it goes on, before any timer has fired.
func TestWake_everyLookIsByTheClock(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	type call = func(*Mutex, context.Context) error
	ended := func(m call) func(*Mutex, context.Context) bool {
		return func(of *Mutex, _ context.Context) bool {
			return errors.Is(m(of, context.Background()), ErrLost)
		}
	}
	var within context.Context
	type looks map[string]func(*Mutex, context.Context) bool
	for before, all := range map[time.Duration]looks{
		0: {
			"Err":          func(m *Mutex, _ context.Context) bool { return m.Hold().Err() != nil },
			"Lost":         func(m *Mutex, _ context.Context) bool { return closed(m.Hold().Lost()) },
			"FencingToken": func(m *Mutex, _ context.Context) bool { return m.FencingToken() == 0 },
			"TryLock":      ended((*Mutex).TryLock),
			"Extend":       ended((*Mutex).Extend),
			"Unlock":       ended((*Mutex).Unlock),
		},
		reserve: {
			"of the context": func(_ *Mutex, ctx context.Context) bool { return ctx.Err() != nil },
			"Done":           func(_ *Mutex, ctx context.Context) bool { return closed(ctx.Done()) },
			"Cause":          func(_ *Mutex, ctx context.Context) bool { return context.Cause(ctx) != nil },
			"of another hold's within it": func(m *Mutex, ctx context.Context) bool {
				if within == nil {
					child, stop := context.WithTimeout(ctx, time.Hour)
					other, err := m.client.Mutex("other").Acquire(ctx)
					require.NoError(t, err)
					var done func()
					within, done = other.Context(child, 0) //nolint:fatcontext // once
					context.AfterFunc(ctx, func() { done(); stop() })
				}
				return within.Err() != nil
			},
			"of its child": func(_ *Mutex, ctx context.Context) bool {
				return context.WithValue(ctx, &closed, 1).Err() != nil
			},
		},
	} {
		for name, look := range all {
			t.Run(name, func(t *testing.T) {
				stopped(t, func(t *testing.T, _ *outside, m *Mutex, ctx context.Context) {
					time.Sleep(time.Until(m.Hold().Deadline()) - before - time.Nanosecond)
					switch name {
					case "TryLock", "Extend", "Unlock": // not only looks
					default:
						assert.False(t, look(m, ctx))
					}
					time.Sleep(time.Nanosecond)
					assert.True(t, look(m, ctx))
				})
			})
		}
	}
}

// asked calls a function when it is asked for Done, as by a context that ends before it.
type asked struct {
	context.Context

	look func()
}

func (a asked) Done() <-chan struct{} {
	a.look()
	return a.Context.Done()
}

// A TryLock waits for nobody, also while it looks at the clock of the hold that there is.
func TestWanted_isNotToldOfATryLock(t *testing.T) {
	stopped(t, func(t *testing.T, _ *outside, m *Mutex, _ context.Context) {
		var wanted <-chan struct{}
		_, cancel := m.Hold().Context(asked{t.Context(), func() {
			if time.Until(m.Hold().Deadline()) == reserve {
				wanted = m.Hold().Wanted()
			}
		}}, reserve)
		defer cancel()
		time.Sleep(time.Until(m.Hold().Deadline()) - reserve)
		require.ErrorIs(t, m.TryLock(t.Context()), ErrHeld)
		select {
		case <-wanted:
			t.Error("nobody waits")
		default:
			require.NotNil(t, wanted)
		}
	})
}

// Close has begun when an Abandon that had begun before ends the hold.
func TestClose_leavesAHoldThatIsBeingAbandoned(t *testing.T) {
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		closing, abandoned := make(chan struct{}), make(chan struct{})
		first, h := hold(t, c), hold(t, c, WithoutRenewal())
		_, done := first.Context(asked{t.Context(), func() {
			if c.open.Err() != nil { // Close loses it before h
				close(closing)
				<-abandoned
			}
		}}, 0)
		_, cancel := h.Context(asked{t.Context(), func() {
			if time.Until(h.Deadline()) == reserve {
				go func() { _ = c.Close() }()
				<-closing
			}
		}}, reserve)
		c.renewer.timer.Stop() // Abandon is the first to look
		time.Sleep(time.Until(h.Deadline()) - reserve)
		require.NoError(t, h.Abandon())
		close(abandoned)
		cancel()
		done()
		synctest.Wait()
		assert.Equal(t, 1, o.released, "the other alone")
	})
}

func TestClose_releasesAHoldWhoseUnlockFindsItClosed(t *testing.T) {
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		first, h := hold(t, c), hold(t, c, WithoutRenewal())
		own, done := first.Context(asked{t.Context(), func() {
			if c.open.Err() != nil { // Close loses it before h
				require.ErrorIs(t, h.Unlock(t.Context()), ErrLost)
			}
		}}, 0)
		context.AfterFunc(own, done)
		require.NoError(t, c.Close())
		assert.Equal(t, 2, o.released)
	})
}

// What was answered while the process was stopped prolongs nothing that has ended since.
func TestWake_anExtendThatIsReadAfterTheDeadlineProlongsNothing(t *testing.T) {
	stopped(t, func(t *testing.T, o *outside, m *Mutex, _ context.Context) {
		o.reply = 2 * time.Second
		time.Sleep(time.Until(m.Hold().Deadline()) - time.Second)
		require.ErrorIs(t, m.Extend(t.Context()), ErrLost)
	})
}

func TestLoss_isInTimeThoughTheGoroutineOfATickStops(t *testing.T) {
	frozen(t, func(t *testing.T, _ *outside, c *Client) {
		h := hold(t, c, WithTTL(300*time.Millisecond))
		c.renewer.mu.Lock()
		due := h.due
		c.renewer.mu.Unlock()
		time.Sleep(time.Until(due) - 1)
		c.takeDue(due) // a tick whose goroutine gets no further
		<-h.Lost()
		assert.LessOrEqual(t, time.Since(h.Deadline()), time.Millisecond)
	})
}

// Two are added before the goroutine of the first has begun.
func TestReports_areMadeOneAfterAnother(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		var r reports
		var made []int
		for i := range 3 {
			r.add(maxReports, func() { time.Sleep(time.Second); made = append(made, i) })
			if i == 1 {
				synctest.Wait()
			}
		}
		assert.True(t, r.close(t.Context()))
		assert.Equal(t, []int{0, 1, 2}, made)
	})
}

// A timer may be late on a busy machine, and a Driver that looks at the clock is not.
func TestRequest_whoseTimerIsLateWasNotAnswered(t *testing.T) {
	r := newRequest(t.Context(), t.Context(), time.Hour)
	defer r.end()
	_ = r.Done() // makes the timer
	r.until = time.Now()
	err := r.explain(fmt.Errorf("reading a reply: %w", context.DeadlineExceeded))
	assert.True(t, silent(err), "it replaces no answer")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
}
