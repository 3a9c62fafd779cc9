package etcd_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sharesAt(t testing.TB, addr string) shares.Backend {
	t.Helper()
	direct := connect(t, addr)
	return shares.Backend{
		Addr: addr, Name: space(t) + ":x", TTL: 20 * time.Second,
		Open:  func(t testing.TB, addr string) shares.Driver { return driverOf(t, connect(t, addr)) },
		Queue: func(t testing.TB) []string { return queue(t, direct, "x") },
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	shares.Run(t, func(t testing.TB) shares.Backend { return sharesAt(t, testserver.SharedEtcd(t).Addr()) })
}
