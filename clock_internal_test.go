package locker

import (
	"context"
	"errors"
	"log/slog"
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

// outside is the world of a machine that can be frozen: a backend, which is also the driver and the one lease, and a
// wall clock. Both go on while the machine is frozen, and its monotonic clock, which is the test's, does not.
type outside struct {
	always
	began time.Time

	mu      sync.Mutex
	ahead   time.Duration   // of the wall clock
	until   time.Time       // the end of the lease, by the clock outside
	sent    []time.Duration // when each request to extend was sent
	reply   time.Duration   // how long an answer takes
	refused int             // which of those requests gets none, counted from 1
}

var errRefusedOnce = errors.New("connection refused")

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

func (o *outside) Acquire(_ context.Context, req driver.Request) (driver.Lease, error) {
	o.mu.Lock()
	o.until = time.Now().Add(o.ahead + req.TTL)
	o.mu.Unlock()
	time.Sleep(o.reply)
	return o, nil
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
		return errRefusedOnce
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

func TestFrozen_aRenewalThatFailsIsSentAgainSoon(t *testing.T) {
	frozen(t, func(t *testing.T, o *outside, c *Client) {
		h := hold(t, c)
		time.Sleep(1500 * time.Millisecond)
		o.refused = 1
		o.freeze(time.Minute)
		<-h.Lost()
		assert.Equal(t, []time.Duration{2 * time.Second, 3250 * time.Millisecond}, o.requests(), "after TTL/24")
	})
}

// The machine is frozen while a request is under way, and has been seen to have been when the reply is read.
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

// A process that was stopped looks, when it goes on, before any timer has fired.
func TestWake_everyLookIsByTheClock(t *testing.T) {
	const ttl = 10 * time.Second
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for name, look := range map[string]func(*Hold, context.Context) bool{
		"Hold.Err":      func(h *Hold, _ context.Context) bool { return errors.Is(h.Err(), ErrLost) },
		"Hold.Lost":     func(h *Hold, _ context.Context) bool { return closed(h.Lost()) },
		"context.Err":   func(_ *Hold, ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) },
		"context.Done":  func(_ *Hold, ctx context.Context) bool { return closed(ctx.Done()) },
		"context.Cause": func(_ *Hold, ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrLost) },
		"of a child":    func(_ *Hold, ctx context.Context) bool { return context.WithValue(ctx, &closed, 1).Err() != nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(&always{}, WithTTL(ttl), WithoutRenewal())
				require.NoError(t, err)
				m := c.Mutex("x")
				require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
				err = m.Do(t.Context(), func(ctx context.Context) error {
					h := m.current()
					c.renewer.timer.Stop()
					time.Sleep(ttl - drift(ttl) - time.Nanosecond)
					assert.False(t, look(h, ctx))
					time.Sleep(time.Nanosecond)
					assert.True(t, look(h, ctx))
					return nil
				})
				require.ErrorIs(t, err, ErrLost)
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestWake_aReserveIsByTheClockToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{}, WithTTL(10*time.Second), WithoutRenewal())
		require.NoError(t, err)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		c.renewer.timer.Stop()
		time.Sleep(time.Until(h.Deadline()) - 2*time.Second - 1)
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, h.Err())
		require.NotErrorIs(t, context.Cause(ctx), ErrLost)
		cancel()
		require.NoError(t, c.Close())
	})
}
