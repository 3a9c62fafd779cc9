package redigo_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	harness.Inspect(t, harness.Inspection{
		URL: "redigo://" + s.Addr() + "?pool_size=3", TTL: time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true, IDs: true,
		TellsHolder: true, TellsMetadata: true,
		Listening: harness.RedisListening(s),
		Stop:      func() func() { s.Stop(); return s.Continue },
		Kill:      s.Kill,
	})
}

func TestInspect_isOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	var roundTrips atomic.Int64
	c := clientOf(t, newPool(t, s.Addr(), countRoundTrips(s.Addr(), &roundTrips)), locker.WithoutRenewal())
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	_, err := c.Inspect(t.Context(), "x") // loads the script
	require.NoError(t, err)
	roundTrips.Store(0)
	_, err = c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.EqualValues(t, 1, roundTrips.Load())
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "redigo://"+testserver.SharedRedis(t).Addr()+"?prefix="+harness.Space(t), time.Second)
}
