package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sharedFor(ttl time.Duration) driver.Request { return driver.Request{Name: "locker:x", TTL: ttl} }

func ignored(error) {}

// queued starts a request that waits, and returns when it stands in the queue.
func queued(t *testing.T, d *driverAt, ask func(ctx context.Context) (driver.Lease, error)) (chan driver.Lease, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan driver.Lease, 1)
	before := d.length(t)
	go func() {
		defer close(got)
		l, err := ask(ctx)
		if err == nil {
			got <- l
		} else if l != nil {
			_ = l.Release(context.WithoutCancel(ctx)) // that of a Driver that is closed fails
		}
	}()
	eventually(t, "it stands in the queue", func() bool { return d.length(t) == before+1 })
	return got, cancel
}

// driverAt is a Driver, and a look at its server.
type driverAt struct {
	driver.Claimer
	addr string
	cut  func()
}

func sharerAt(t *testing.T, s *testserver.RedisServer) *driverAt {
	t.Helper()
	p := testserver.NewProxy(t, s.Addr())
	return &driverAt{driverOf(t, connect(t, p.Addr())), s.Addr(), p.Close}
}

func (d *driverAt) length(t *testing.T) int64 {
	t.Helper()
	return connect(t, d.addr).ZCard(t.Context(), keyOf("x")+":queue").Val()
}

func (d *driverAt) waitsToRead(ctx context.Context) (driver.Lease, error) {
	req := sharedFor(time.Minute)
	req.Shared = true
	return claims.Wait(ctx, d, req, ignored)
}

func (d *driverAt) waitsToWrite(ctx context.Context) (driver.Lease, error) {
	return claims.Wait(ctx, d, sharedFor(time.Minute), ignored)
}

func read(t *testing.T, d driver.Claimer, ttl time.Duration) driver.Lease {
	t.Helper()
	l, err := claims.Share(t.Context(), d, sharedFor(ttl))
	require.NoError(t, err)
	return l
}

func wantSoon(t *testing.T, got chan driver.Lease, within time.Duration) driver.Lease {
	t.Helper()
	select {
	case l := <-got:
		require.NotNil(t, l)
		return l
	case <-time.After(within):
		require.FailNow(t, "it still waits")
		return nil
	}
}

// A writer that nobody has heard of for five seconds is passed over: one that waits is heard of more often.
func TestShare_aWriterThatWaitsLongIsNotOvertaken(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	d, other := sharerAt(t, s), sharerAt(t, s)
	first := read(t, d, time.Minute)
	got, cancel := queued(t, other, other.waitsToWrite)
	defer cancel()
	later, cancelReader := queued(t, d, d.waitsToRead)
	defer cancelReader()
	for start := time.Now(); time.Since(start) < 8*time.Second; time.Sleep(50 * time.Millisecond) {
		_, err := claims.Share(t.Context(), d, sharedFor(time.Minute))
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	require.Empty(t, later, "the reader behind it waits")
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, wantSoon(t, got, 10*time.Second).Release(t.Context()))
	wantSoon(t, later, 10*time.Second)
}

func TestShare_theRightsOfAWaiterAreEnough(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(
		userWith("waits", append([]string{"zadd", "zcard", "zpopmin", "zrange", "zrem", "zscore"}, rights...)), userWith("no-z", rights)))
	d := driverOf(t, connect(t, s.Addr(), as("waits")))
	first, second := read(t, d, time.Minute), read(t, d, time.Minute)
	state, err := driverOf(t, connect(t, s.Addr())).Inspect(t.Context(), "locker:x")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Len(t, state.Shares, 2)
	for _, l := range []driver.Lease{first, second} {
		require.NoError(t, l.Extend(t.Context(), time.Minute))
		require.NoError(t, l.Release(t.Context()))
	}
	l := take(t, d, "locker:x", time.Minute)
	require.NoError(t, l.(driver.Downgrader).Downgrade(t.Context()))
	require.NoError(t, l.Release(t.Context()))

	none := driverOf(t, connect(t, s.Addr(), as("no-z")))
	_, err = claims.Share(t.Context(), none, sharedFor(time.Minute))
	wantNoPerm(t, err)
	assert.False(t, isHeldAt(t, connect(t, s.Addr()), keyOf("x")), "nothing is taken")
	l = take(t, none, "locker:x", time.Minute)
	wantNoPerm(t, l.(driver.Downgrader).Downgrade(t.Context()))
	require.NoError(t, l.Extend(t.Context(), time.Minute), "it is what it was")
	require.NoError(t, l.Release(t.Context()))
}
