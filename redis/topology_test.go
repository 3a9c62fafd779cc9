package redis_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sentinelURL(g *testserver.SentinelGroup) string {
	return "redis://" + strings.Join(g.Addrs(), ",") + "?master_name=" + g.MasterName()
}

func clusterURL(c *testserver.RedisCluster) string {
	return "redis://" + strings.Join(c.Addrs(), ",") + "?cluster=true"
}

// openURL opens a Client, and closes it when the test ends.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(context.WithoutCancel(t.Context()), url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
