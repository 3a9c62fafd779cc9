package redisscript

import (
	"context"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

// atServer is a Driver whose runner is a server, and that server's clock in µs.
func atServer(t *testing.T) (d *Driver, now func() int64, queued func() int64) {
	t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: testserver.SharedRedis(t).Addr()})
	keys := script.Keys(t.Name())
	d = NewDriver(&fakeRunner{answer: func(s *script.Script, args []any) (any, error) {
		mine := keys
		if !s.Queue {
			mine = keys[:1]
		}
		return rdb.Eval(context.Background(), s.Source, mine, args...).Result()
	}})
	t.Cleanup(func() { _ = d.Close(rdb.Close) })
	return d, func() int64 { return rdb.Time(context.Background()).Val().UnixMicro() },
		func() int64 { return rdb.ZCard(context.Background(), keys[1]).Val() }
}

// What a node of Redlock says to a candidate that waits, and to one that does not.
func TestCandidate(t *testing.T) {
	t.Parallel()
	d, now, queued := atServer(t)
	_, known := d.ServerTime()
	require.False(t, known)
	req := driver.Request{Name: t.Name(), TTL: time.Minute}
	token := uint64(now())
	holder := d.Candidate(req, 0, nil)
	earlier, err := holder.Propose(t.Context(), token)
	require.NoError(t, err)
	require.False(t, earlier)
	require.Equal(t, token, holder.Token())
	require.Positive(t, holder.Validity())
	server, known := d.ServerTime()
	require.True(t, known)
	assert.InDelta(t, now(), server.UnixMicro(), 1e6)

	waiter := d.Candidate(req, token<<10, func(bool) {})
	require.False(t, waiter.Known(), "nothing was sent")
	_, err = waiter.Propose(t.Context(), token)
	require.ErrorIs(t, err, driver.ErrHeld)
	require.True(t, waiter.Known())
	require.EqualValues(t, 1, queued())
	require.NoError(t, waiter.Release(t.Context()))
	require.Zero(t, queued())
	require.ErrorIs(t, waiter.Release(t.Context()), driver.ErrLost, "it is not there")

	far, near := token+uint64(13*time.Hour/time.Microsecond), token+uint64(11*time.Hour/time.Microsecond)
	require.ErrorIs(t, holder.Raise(t.Context(), far), locker.ErrUnsupported)
	assert.Equal(t, token, holder.Token(), "nothing has changed")
	require.NoError(t, holder.Raise(t.Context(), near))
	assert.Equal(t, near, holder.Token())
	require.NoError(t, holder.Raise(t.Context(), far), "it is near what the server has accepted")
	require.NoError(t, holder.Release(t.Context()))
	require.ErrorIs(t, holder.Raise(t.Context(), far+1), locker.ErrLost)
	assert.Zero(t, d.hub.Len())
}
