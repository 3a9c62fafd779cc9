package redisscript

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// A request is waited for until its context ends.
func TestSender_aRequestEndsWithItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
	}{
		"by a cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, time.Second},
		"in time": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3 * time.Second},
		"soon": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, interval/2)
		}, interval / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				d := NewDriver(g)
				ctx, cancel := c.end(t.Context())
				defer cancel()
				began := time.Now()
				_, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Hour})
				assert.LessOrEqual(t, time.Since(began), c.after+3*moment)
				assert.Equal(t, ctx.Err(), err)
				synctest.Wait()
				require.Error(t, g.latest.Err(), "nobody waits")
				require.Len(t, g.sizes(), 1)
				_, err = claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Hour})
				require.Error(t, err)
				assert.Len(t, g.sizes(), 1, "nothing is sent for who waits no more")
				close(g.gate)
				require.NoError(t, d.Close(noClient))
			})
		})
	}
}

// A take that is not answered is given up after half of its TTL, also without the end of a context.
func TestSender_aTakeEndsInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		began := time.Now()
		_, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: 6 * time.Second})
		require.ErrorIs(t, err, errNoAnswer)
		assert.Equal(t, 3*time.Second+moment, time.Since(began))
		close(g.gate)
		require.NoError(t, d.Close(noClient))
	})
}

// punctual is a client library that gives up each request at its deadline.
type punctual struct{ puppet }

func (*punctual) Run(ctx context.Context, _ []Call, replies []Reply) {
	until, _ := ctx.Deadline()
	time.Sleep(time.Until(until))
	for i := range replies {
		replies[i].Err = os.ErrDeadlineExceeded
	}
}

// The client library is the first to see that the time of a request is over.
func TestSender_aClientLibrarysTimeoutIsThatOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver(&punctual{})
		_, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: moment})
		require.ErrorIs(t, err, errNoAnswer)
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
			assert.Len(t, g.sizes(), 1)
		}
		time.AfterFunc(time.Second, func() { close(g.gate) })
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		assert.Len(t, g.sizes(), 2)
		require.NoError(t, d.Close(noClient))
	})
}

type ender struct{ n atomic.Int32 }

func (e *ender) End() { e.n.Add(1) }

// What a client library is given is a context in all respects.
func TestBatch_isAContext(t *testing.T) {
	for name, want := range map[string]error{"cancelled": context.Canceled, "timed out": context.DeadlineExceeded, "answered": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				d := NewDriver(g)
				caller, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := takes(caller, d, 1, 2*time.Second)
				synctest.Wait()
				ctx := g.latest
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				assert.Equal(t, time.Second, time.Until(deadline))
				var ran atomic.Int32
				derived, release := context.WithCancel(ctx)
				defer release()
				context.AfterFunc(ctx, func() { ran.Add(1) })
				var ends ender
				AtEnd(ctx, &ends).Stop()
				ending := AtEnd(ctx, &ends)
				stopped := context.AfterFunc(ctx, func() { t.Error("it was stopped") })
				assert.True(t, stopped())
				assert.False(t, stopped())
				require.NoError(t, ctx.Err())
				select {
				case <-ctx.Done():
					t.Error("it has ended, and Err is nil")
				default:
				}

				switch name {
				case "cancelled":
					cancel()
				case "timed out":
					time.Sleep(time.Until(deadline) + 2*moment)
				default:
					close(g.gate)
				}
				<-ctx.Done()
				synctest.Wait()
				require.ErrorIs(t, ctx.Err(), want)
				assert.Equal(t, want, derived.Err())
				assert.EqualValues(t, 1, ran.Load())
				ending.Stop()
				assert.EqualValues(t, 1, ends.n.Load())
				AtEnd(ctx, &ends).Stop()
				assert.EqualValues(t, 2, ends.n.Load(), "it has ended before")
				context.AfterFunc(ctx, func() { ran.Add(1) })
				synctest.Wait()
				assert.EqualValues(t, 2, ran.Load())
				time.Sleep(time.Hour)
				require.ErrorIs(t, ctx.Err(), want, "it stays")
				if name != "answered" {
					close(g.gate)
				}
				if err := <-done; name == "answered" {
					require.NoError(t, err)
				}
				require.NoError(t, d.Close(noClient))
			})
		})
	}
}

// Every call returns soon after its context ends, whatever the client library does.
func TestSender_everyCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		done := takes(t.Context(), d, 1, time.Hour)
		g.gate <- struct{}{}
		require.NoError(t, <-done)
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

// A wait in the queue ends as its context does.
func TestHub_aWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		d := NewDriver(&puppet{
			dial: func(context.Context) (Subscription, error) { return w, nil },
			run:  func(context.Context, *Script, string) (any, error) { return heldReply(7), nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel) // before the first look
		began := time.Now()
		require.ErrorIs(t, <-queued(ctx, d, forOneSecond), context.Canceled)
		assert.Equal(t, time.Millisecond, time.Since(began))
		require.NoError(t, d.Close(noClient))
	})
}

// A renewal of many is one request, which does not take others along.
func TestSender_aLargeRequestGoesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		first := takes(t.Context(), d, maxBatches, time.Minute)
		synctest.Wait()
		many := make([]driver.Lease, 2*maxCalls)
		for i := range many {
			many[i] = d.Claim(driver.Request{Name: "x", TTL: time.Minute}).(*claim)
		}
		others := takes(t.Context(), d, 2, time.Minute)
		synctest.Wait()
		var errs []error
		extended := make(chan struct{})
		go func() { errs = d.ExtendAll(t.Context(), many, time.Minute); close(extended) }()
		synctest.Wait()
		more := takes(t.Context(), d, 2, time.Minute)
		synctest.Wait()
		for range maxBatches {
			g.gate <- struct{}{}
			synctest.Wait()
		}
		close(g.gate)
		<-extended
		assert.Equal(t, make([]error, len(many)), errs)
		for _, done := range []<-chan error{first, others, more} {
			for range cap(done) {
				require.NoError(t, <-done)
			}
		}
		assert.Equal(t, []int{1, 1, 2, len(many), 2}, g.sizes())
		require.NoError(t, d.Close(noClient))
	})
}

// stuck is a client library whose SCAN answers when the gate is open, whatever its context does.
type stuck struct{ *gated }

func (s *stuck) Scans(context.Context) ([]Scan, error) { <-s.gate; return nil, nil }
