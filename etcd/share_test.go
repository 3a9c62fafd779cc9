package etcd_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
)

func sharesAt(t testing.TB, addrs ...string) shares.Backend {
	t.Helper()
	direct := connect(t, addrs...)
	return shares.Backend{
		Name: space(t) + ":x", TTL: 5 * time.Second,
		Open:  func(t testing.TB) shares.Driver { return driverOf(t, connect(t, addrs...)) },
		Queue: func(t testing.TB) []string { return queue(t, direct, "x") },
	}
}

func TestShares_aWriterWaitsForEach(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).WriterWaitsForEach(t)
}

func TestShares_thatWaitAreGrantedTogether(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).SharesWaitTogether(t)
}

func TestDowngrade_letsSharesIn(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).Downgrades(t)
}

func TestShare_endsWithItsSession(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).EndsWithItsSession(t)
}

func TestShares_atRandom(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).Explore(t, 100)
}

func TestForceRelease_ofAShareEndsNoOther(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedEtcd(t).Addr()).IsForced(t)
}
