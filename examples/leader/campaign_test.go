package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// mutex is that of a process of its own, within a bubble.
func mutex(t *testing.T, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	c, err := locker.New(memory.NewDriver(memory.InSpace(t.Name())), append(opts, locker.WithTTL(ttl))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.Mutex("leader")
}

func silent(string, ...any) {}

// campaign has a candidate campaign until the returned function is called, which returns its error.
func campaign(t *testing.T, m *locker.Mutex, lead func(context.Context, uint64)) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := testwait.Go(func() error { return candidate{lock: m, lead: lead, say: silent}.campaign(ctx) })
	return func() error {
		cancel()
		return <-done
	}
}

func TestCampaign_whoIsNotRenewedHasTimeToStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaders, terms atomic.Int32
		lead := func(ctx context.Context, token uint64) {
			assert.EqualValues(t, 1, leaders.Add(1), "another leads")
			assert.NotZero(t, token)
			terms.Add(1)
			<-ctx.Done()
			if terms.Load() < 50 {
				require.ErrorContains(t, context.Cause(ctx), "was not renewed", "it would expire")
			}
			time.Sleep(ttl / 5) // it does not stop at once
			leaders.Add(-1)
		}
		var stops []func() error
		for range 3 {
			stops = append(stops, campaign(t, mutex(t, locker.WithoutRenewal()), lead))
		}
		testwait.Patience(time.Hour).Until(t, "all have led again and again", func() bool { return terms.Load() >= 50 })
		for _, stop := range stops {
			require.NoError(t, stop(), "the lead is given back before it expires")
		}
	})
}

func TestCampaign_whoIsRenewedLeadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var led time.Duration
		stop := campaign(t, mutex(t), func(ctx context.Context, _ uint64) {
			<-ctx.Done()
			led = time.Since(began)
		})
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		assert.Equal(t, time.Hour, led)
	})
}

func TestCampaign_whoIsStoppedLeavesTheLeadToTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int32
		led := func(n int32) func(context.Context, uint64) {
			return func(ctx context.Context, _ uint64) { now.Store(n); <-ctx.Done() }
		}
		stop1 := campaign(t, mutex(t), led(1))
		synctest.Wait()
		stop2 := campaign(t, mutex(t), led(2))
		stop3 := campaign(t, mutex(t), led(3))
		synctest.Wait()
		assert.EqualValues(t, 1, now.Load())
		require.NoError(t, stop2(), "it was waiting")
		require.NoError(t, stop1())
		synctest.Wait()
		assert.EqualValues(t, 3, now.Load())
		require.NoError(t, stop3())
	})
}

func TestCampaign_whoHasStoodStillIsToldAndIsACandidateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said error
		var tokens []uint64
		ctx, cancel := context.WithCancel(t.Context())
		c := candidate{lock: mutex(t, locker.WithoutRenewal()), say: func(_ string, args ...any) { said = args[1].(error) }}
		c.lead = func(_ context.Context, token uint64) {
			if tokens = append(tokens, token); len(tokens) == 1 {
				time.Sleep(2 * ttl) // and does not look at its ctx
				return
			}
			cancel()
		}
		require.NoError(t, c.campaign(ctx))
		require.ErrorIs(t, said, locker.ErrLost)
		require.Len(t, tokens, 2)
		assert.Less(t, tokens[0], tokens[1])
	})
}

func TestCampaign_ofAClosedClientEnds(t *testing.T) {
	c, err := locker.New(memory.NewDriver())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	err = candidate{lock: c.Mutex("leader"), say: silent}.campaign(t.Context())
	require.ErrorIs(t, err, locker.ErrClosed)
}

var errUnreachable = errors.New("connection refused")

// unreachable is a backend that cannot be reached.
type unreachable struct{}

func (unreachable) Acquire(context.Context, driver.Request) (driver.Lease, error) {
	return nil, errUnreachable
}
func (unreachable) Guarantees() locker.Guarantees { return nil }
func (unreachable) Close() error                  { return nil }

func TestCampaign_whileTheBackendIsAwayItIsAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := locker.New(unreachable{}, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-rest/2) // not while it asks
		defer cancel()
		said := 0
		err = candidate{lock: c.Mutex("leader"), say: func(_ string, args ...any) {
			said++
			assert.ErrorIs(t, args[1].(error), errUnreachable)
		}}.campaign(ctx)
		require.NoError(t, err)
		assert.Positive(t, said)
		assert.LessOrEqual(t, said, 61, "once a second")
	})
}
