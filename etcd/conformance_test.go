package etcd_test

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The suite on real servers, each Locker on a client and connections of its own.
func TestConformance(t *testing.T) {
	for name, n := range map[string]int{"one server": 1, "three servers": 3, "users": 1} {
		t.Run(name, func(t *testing.T) {
			var opts []testserver.EtcdOption
			if n == 1 {
				testwait.OnlyNightly(t, "three servers have all faults of one, and FailOver")
			}
			if name == "users" { // whose tokens expire
				opts = []testserver.EtcdOption{testserver.EtcdAuth("alice", password), testserver.EtcdArgs("--auth-token-ttl=1")}
			}
			h := cluster(t, testserver.EtcdCluster(t, n, opts...), opts != nil)
			t.Parallel()
			conformance.Run(t, h)
		})
	}
}

// password is that of the users.
const password = "s3cret"

// cluster has all faults but MoveClock: no clock but its own can be given to a program that asks
// the kernel for the time, and etcd counts what is left of a lease by one that nobody moves. One
// server has no FailOver.
func cluster(t *testing.T, g *testserver.EtcdGroup, users bool) conformance.Harness {
	t.Helper()
	root, url := clientv3.Config{Endpoints: g.Addrs(), Logger: zap.NewNop()}, "etcd://%s?prefix=locker"
	if users {
		root.Username, root.Password = "root", password
		url = "etcd://alice:" + password + "@%s?prefix=locker"
	}
	h := harness.ForURL(time.Second, url, g.Addrs())
	h.Deviations = knownbreaks.Consensus()
	harness.Servers(&h.Faults, g.Servers(), g.Restart)
	if servers := g.Servers(); len(servers) > 1 {
		h.Faults.FailOver = harness.QuorumFailOver(servers, g.Leader)
	}
	asRoot := func(t conformance.TB) *clientv3.Client {
		cli, err := clientv3.New(root)
		if err != nil {
			t.Fatalf("etcd: %v", err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	h.Faults.Refuse = func(t conformance.TB) (accept func()) { return etcd.SpaceAlarm(t, asRoot(t)) }
	h.Faults.Revoke = func(t conformance.TB, name string) {
		cli := asRoot(t)
		first, err := cli.Get(t.Context(), "locker:"+name+"/", clientv3.WithFirstCreate()...)
		if err == nil && len(first.Kvs) > 0 {
			_, err = cli.Revoke(t.Context(), clientv3.LeaseID(first.Kvs[0].Lease))
		}
		if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) { // it has ended by itself
			t.Fatalf("etcd: revoking the hold of %q: %v", name, err)
		}
	}
	return h
}
