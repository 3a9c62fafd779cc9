package etcd_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	b.ExtendsAll(t, driverOf(t, connect(t, b.Addr)), 20*time.Second, space(t))
}

func TestShares(t *testing.T) {
	t.Parallel()
	shares.Run(t, func(t testing.TB) shares.Backend {
		t.Helper()
		addr := testserver.SharedEtcd(t).Addr()
		direct := connect(t, addr)
		return shares.Backend{
			Addr: addr, Name: space(t) + ":x", TTL: 20 * time.Second,
			Open:  func(t testing.TB, addr string) shares.Driver { return driverOf(t, connect(t, addr)) },
			Queue: func(t testing.TB) []string { return queue(t, direct, "x") },
		}
	})
}
