package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// wantOwnError fails unless err is the client library's, with text in it, and no news of another owner.
func wantOwnError(t *testing.T, err error, text string) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.NotErrorIs(t, err, locker.ErrLost)
	var own goredis.Error
	require.ErrorAs(t, err, &own, "%v", err)
	require.Contains(t, own.Error(), text, "%q, want %s in it", own, text)
}

func TestFaults_readOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t)
	replica := testserver.Redis(t, testserver.RedisReplicaOf(primary))
	rdb := connect(t, replica.Addr())
	c := clientOf(t, rdb, locker.WithTTL(10*time.Second))
	m := c.Mutex("x")
	wantOwnError(t, m.Lock(t.Context()), "READONLY")
	assert.Zero(t, rdb.DBSize(t.Context()).Val())

	// A primary that is demoted while the lock is held.
	p := clientOf(t, connect(t, primary.Addr()), locker.WithTTL(time.Second), locker.WithoutRenewal()).Mutex("y")
	require.NoError(t, p.Lock(t.Context()))
	require.NoError(t, connect(t, primary.Addr()).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(), "a primary that never answers, so that the data stays")
	wantOwnError(t, p.Extend(t.Context()), "READONLY")
	assert.NotZero(t, p.FencingToken())
	wantOwnError(t, p.Unlock(t.Context()), "READONLY")
}
