package redisscript

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
