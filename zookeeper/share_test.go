package zookeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"

	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestShares(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedZooKeeper(t).Addr()
	shares.Run(t, func(t testing.TB) shares.Backend {
		t.Helper()
		look := direct(t, addr)
		return shares.Backend{
			Addr: addr, Name: space(t) + ":x", TTL: 20 * time.Second,
			Open:  openShares,
			Queue: func(t testing.TB) []string { return queue(t, look, "x") },
		}
	})
}

func openShares(t testing.TB, addr string) shares.Driver {
	t.Helper()
	u, err := driver.ParseURL("zookeeper://" + addr + "?tick=100ms")
	require.NoError(t, err)
	d, err := driver.Open(context.WithoutCancel(t.Context()), u)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(shares.Driver)
}
