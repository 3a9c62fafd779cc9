package all_test

import (
	"strings"
	"testing"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The module postgres has the same test.
func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"redis", "redigo"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			harness.Outage(t, scheme+"://"+s.Addr(), s.Kill)
		})
	}
	t.Run("redlock", func(t *testing.T) {
		t.Parallel()
		var addrs []string
		var nodes []*testserver.RedisServer
		for range 3 {
			nodes = append(nodes, testserver.Redis(t))
			addrs = append(addrs, nodes[len(nodes)-1].Addr())
		}
		harness.Outage(t, "redlock://"+strings.Join(addrs, ","), func() { nodes[0].Kill(); nodes[1].Kill() })
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		s := testserver.Etcd(t)
		harness.Outage(t, s.URL(), s.Kill)
	})
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		s := testserver.ZooKeeper(t)
		harness.Outage(t, s.URL(), s.Kill)
	})
}
