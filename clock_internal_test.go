package locker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
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

func (o *outside) Guarantees() Guarantees        { return nil }
func (o *outside) Close() error                  { return nil }
func (o *outside) Token() uint64                 { return 1 }
func (o *outside) Validity() time.Duration       { return time.Hour }
func (o *outside) Release(context.Context) error { return nil }

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

// Each step is a request: when it was sent, in seconds, and its outcome; nil is ErrHeld. What is
// checked follows it, at the same moment.
func TestOutage(t *testing.T) {
	const ttl = 20 * time.Second
	refused, away := errors.New("refused"), noanswer.Error("silence")
	unreachable := &net.OpError{Op: "dial", Err: refused}
	type step struct {
		at   int
		err  error
		why  error
		left int
		// whether a caller that waits gives up, and one that does not
		waiting, trying bool
	}
	for name, steps := range map[string][]step{
		"a refusal is tried three times": {
			{0, refused, refused, 10, false, false}, {0, refused, refused, 10, false, false}, {0, refused, refused, 10, true, true},
		},
		"one that comes late is the last":               {{0, nil, nil, 10, false, false}, {1, refused, refused, 10, false, false}},
		"an outage is ridden out for half a TTL":        {{0, unreachable, unreachable, 10, false, false}, {9, unreachable, unreachable, 1, false, true}, {10, unreachable, unreachable, 0, true, true}},
		"an answer ends it":                             {{0, unreachable, unreachable, 10, false, false}, {5, nil, nil, 10, false, false}, {9, refused, refused, 10, false, false}, {19, refused, refused, 0, true, true}},
		"silence does not hide why, nor outlive a word": {{0, unreachable, unreachable, 10, false, false}, {1, away, unreachable, 9, false, true}, {2, refused, refused, 8, true, true}},
		"what asking again does not change":             {{0, ErrUnsupported, ErrUnsupported, 10, true, true}},
	} {
		began := time.Now()
		o := outage{began: began}
		for i, s := range steps {
			now := began.Add(time.Duration(s.at) * time.Second)
			o.tries++
			if s.err == nil {
				o.onAnswer()
			} else {
				o.onFailure(now, s.err)
			}
			assert.Equal(t, s.why, o.why, "%s: %d", name, i)
			assert.Equal(t, time.Duration(s.left)*time.Second, o.left(ttl, now), "%s: %d", name, i)
			if s.err != nil {
				assert.Equal(t, s.waiting, o.hopeless(s.err, true, ttl, now), "%s: %d, waits", name, i)
				assert.Equal(t, s.trying, o.hopeless(s.err, false, ttl, now), "%s: %d, does not wait", name, i)
			}
		}
	}
}
