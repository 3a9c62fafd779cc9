package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

func TestNew_nilClients(t *testing.T) {
	t.Parallel()
	var client *goredis.Client
	var cluster *goredis.ClusterClient
	var ring *goredis.Ring
	for name, rdb := range map[string]goredis.UniversalClient{
		"nil": nil, "*Client": client, "*ClusterClient": cluster, "*Ring": ring,
	} {
		c, err := redis.New(rdb)
		require.Error(t, err, name)
		assert.Nil(t, c, name)
		require.ErrorContains(t, err, "nil redis client")
		d, err := redis.NewDriver(rdb)
		require.Error(t, err, name)
		assert.Nil(t, d, name)
	}
}

func TestNew_leavesTheCallersClientOpen(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	c, err := redis.New(rdb)
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	require.NoError(t, c.Close())
	require.NoError(t, rdb.Ping(t.Context()).Err())
	assert.False(t, isHeldAt(t, rdb, keyOf("x")))
	again, err := redis.New(rdb)
	require.NoError(t, err)
	require.NoError(t, again.Mutex("x").Lock(t.Context()))
	require.NoError(t, again.Close())
}
