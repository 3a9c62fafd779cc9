package redisscript

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// proposals has n goroutines propose a take of a lock each, as Redlock does. What they come to is sent to the result.
func proposals(ctx context.Context, d *Driver, n int) <-chan error {
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := claims.Propose(ctx, d, driver.Request{Name: "x", TTL: time.Minute}, 7)
			done <- err
		}()
	}
	return done
}

// Proposals share round trips, too; the first go at once, in the goroutines that ask, and those who come meanwhile with the next.
func TestSender_proposalsShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		first := proposals(t.Context(), d, maxBatches)
		synctest.Wait()
		const n = 30
		others := proposals(t.Context(), d, n)
		synctest.Wait()
		require.Equal(t, []int{1, 1}, g.sizes())
		g.gate <- struct{}{}
		require.NoError(t, <-first, "who has its answer does not wait for the others")
		synctest.Wait()
		require.Equal(t, []int{1, 1, n}, g.sizes())
		close(g.gate)
		require.NoError(t, <-first)
		for range n {
			require.NoError(t, <-others)
		}
		require.NoError(t, d.Close(noClient))
	})
}

// A node that hangs holds up a proposal for a moment. One whose context ends is taken back, if it was not sent; else it is under way until
// the client library returns, because Redlock counts it.
func TestSender_aProposalWhoseContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		hung := proposals(t.Context(), d, maxBatches)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		unsent := proposals(ctx, d, 1)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-unsent, context.Canceled)

		ctx, cancel = context.WithCancel(t.Context())
		sent, stays := proposals(ctx, d, 1), proposals(t.Context(), d, 1)
		time.Sleep(overdue)
		synctest.Wait()
		require.Equal(t, []int{1, 1, 2}, g.sizes(), "others do not wait for batches that hang")
		cancel()
		synctest.Wait()
		require.Empty(t, sent)
		require.NoError(t, g.latest.Err(), "the other one is waited for")
		close(g.gate)
		require.NoError(t, <-sent)
		require.NoError(t, <-stays)
		for range maxBatches {
			require.NoError(t, <-hung)
		}
		require.NoError(t, d.Close(noClient))
	})
}

// Close returns when the requests under way are answered, and those that wait for them.
func TestSender_closeWaitsForProposals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		asked := proposals(t.Context(), d, maxBatches+2)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- d.Close(noClient) }()
		synctest.Wait()
		require.Empty(t, closed)
		require.ErrorIs(t, <-proposals(t.Context(), d, 1), locker.ErrClosed)
		close(g.gate)
		require.NoError(t, <-closed)
		synctest.Wait()
		require.Len(t, asked, maxBatches+2)
		for range maxBatches + 2 {
			require.NoError(t, <-asked)
		}
		require.ErrorIs(t, <-proposals(t.Context(), d, 1), locker.ErrClosed, "nor does one go at once")
	})
}

// heeding is a client library that heeds deadlines, and no cancellation.
type heeding struct{ gated }

func (*heeding) HeedsDeadlines() bool { return true }

func (h *heeding) Run(ctx context.Context, calls []Call, replies []Reply) {
	until, _ := ctx.Deadline()
	late := time.AfterFunc(time.Until(until), func() { h.gate <- struct{}{} })
	h.gated.Run(ctx, calls, replies)
	if !late.Stop() {
		replies[0] = Reply{Err: os.ErrDeadlineExceeded, MayHaveRun: true}
	}
}

// core is a context as the core's.
type core struct {
	context.Context

	cancellable bool
}

func (c core) Cancellable() bool { return c.cancellable }

// A caller makes its request by itself if nothing but the deadline ends its context, and no other
// request is in flight.
func TestSender_aCallerMakesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heeding{gated{gate: make(chan struct{})}}
		d := NewDriver(h)
		byCaller := func() bool { synctest.Wait(); return h.latest.(*batch).own }
		one := takes(core{Context: t.Context()}, d, 1, time.Minute)
		require.True(t, byCaller())
		second := takes(core{Context: t.Context()}, d, 1, time.Minute)
		require.False(t, byCaller(), "another is in flight")
		third := takes(core{Context: t.Context()}, d, 1, time.Minute)
		h.gate <- struct{}{}
		h.gate <- struct{}{}
		h.gate <- struct{}{}
		for _, done := range []<-chan error{one, second, third} {
			require.NoError(t, <-done)
		}
		require.Equal(t, []int{1, 1, 1}, h.sizes())
		require.Error(t, h.latest.Err(), "its context has ended")

		ctx, cancel := context.WithCancel(t.Context())
		one = takes(core{ctx, true}, d, 1, time.Minute)
		require.False(t, byCaller())
		cancel()
		require.ErrorIs(t, <-one, context.Canceled, "at once")
		h.gate <- struct{}{}
		synctest.Wait()

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		one = takes(core{Context: ctx}, d, 1, time.Minute)
		require.True(t, byCaller())
		require.ErrorIs(t, <-one, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), time.Second+interval)
		require.NoError(t, d.Close(noClient))
	})
}
