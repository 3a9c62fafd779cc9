package zookeeper_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"

	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func sharesAt(t testing.TB, addrs ...string) shares.Backend {
	t.Helper()
	look := direct(t, addrs...)
	name := space(t) + ":x"
	return shares.Backend{
		Name: name, TTL: 20 * time.Second,
		Open: func(t testing.TB) shares.Driver {
			t.Helper()
			u, err := driver.ParseURL("zookeeper://" + strings.Join(addrs, ",") + "?tick=100ms")
			require.NoError(t, err)
			d, err := driver.Open(context.WithoutCancel(t.Context()), u)
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.(*zookeeper.Driver).Close() })
			return d.(*zookeeper.Driver)
		},
		Queue: func(t testing.TB) []string { return queue(t, look, "x") },
	}
}

func TestShares_aWriterWaitsForEach(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).WriterWaitsForEach(t)
}

func TestShares_thatWaitAreGrantedTogether(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).SharesWaitTogether(t)
}

func TestDowngrade_letsSharesIn(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).Downgrades(t)
}

func TestDowngrade_besideOtherCalls(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).DowngradesMeanwhile(t)
}

func TestShare_endsWithItsSession(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).EndsWithItsSession(t)
}

func TestShares_atRandom(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).Explore(t, 100)
}

func TestShare_whoseRepliesAreLost(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedZooKeeper(t).Addr()
	proxy := testserver.NewProxy(t, addr)
	sharesAt(t, addr).Unanswered(t, sharesAt(t, proxy.Addr()).Open(t), proxy)
}

func TestForceRelease_ofAShareEndsNoOther(t *testing.T) {
	t.Parallel()
	sharesAt(t, testserver.SharedZooKeeper(t).Addr()).IsForced(t)
}
