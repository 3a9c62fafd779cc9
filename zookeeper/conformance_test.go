package zookeeper_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/zookeeper"
)

// The suite on real servers, each Locker on a client and a connection of its own.
func TestConformance(t *testing.T) {
	t.Run("one server", func(t *testing.T) { conform(t, 1, "prefix=locker") })
	t.Run("three servers", func(t *testing.T) {
		testwait.OnlyNightly(t, "three Java processes cost more than twice as much, and TestCluster_theLeaderIsKilled shows a failover")
		conform(t, 3, "tick=100ms")
	})
}

func conform(t *testing.T, n int, parameters string) {
	t.Helper()
	// Who was elected and sees no majority gives up within 5 s; who is slow on a busy machine is not
	// given up for 2 s.
	opts := []testserver.ZooKeeperOption{testserver.ZooKeeperConfig("initLimit=50", "syncLimit=20"), testserver.ZooKeeperReaping()}
	if testserver.ShiftsClocks {
		opts = append(opts, testserver.ZooKeeperClock())
	}
	h := ensemble(t, testserver.ZooKeeperEnsemble(t, n, opts...), parameters)
	t.Parallel()
	conformance.Run(t, h)
}

// ensemble has all faults, but one server has no FailOver.
func ensemble(t *testing.T, g *testserver.ZooKeeperGroup, parameters string) conformance.Harness {
	t.Helper()
	servers := g.Servers()
	h := harness.ForURL(700*time.Millisecond, "zookeeper://%s?"+parameters, g.Addrs())
	h.Deviations = knownbreaks.Consensus()
	maps.Copy(h.Deviations, knownbreaks.ZooKeeper())
	harness.Servers(&h.Faults, servers, g.Restart)
	stop := h.Faults.StopServer
	h.Faults.StopServer = func(t conformance.TB) (resume func()) {
		wake := stop(t)
		return func() {
			wake()
			g.Leader() // an ensemble that was stopped has to elect one
		}
	}
	harness.Clocks(&h.Faults, servers)
	if len(servers) > 1 {
		h.Faults.FailOver = harness.QuorumFailOver(servers, g.Leader)
	}
	h.Faults.Revoke = func(t conformance.TB, name string) {
		session, err := sessionOfHolder(servers[0].Addr(), name)
		switch {
		case errors.Is(err, zk.ErrNoNode): // nobody has the lock
		case err != nil:
			t.Fatalf("ZooKeeper: who holds %q: %v", name, err)
		default:
			servers[0].EndSession(session)
		}
	}
	return h
}

// sessionOfHolder is the session of the first in the queue of a name.
func sessionOfHolder(addr, name string) (session int64, err error) {
	conn, end, err := zookeeper.Connect(addr)
	if err != nil {
		return 0, err
	}
	defer end()
	if _, err := conn.Sync("/locker/" + name); err != nil {
		return 0, err
	}
	children, _, err := conn.Children("/locker/" + name)
	if err != nil {
		return 0, err
	}
	if len(children) == 0 {
		return 0, zk.ErrNoNode
	}
	first := slices.MinFunc(children, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	_, stat, err := conn.Get("/locker/" + name + "/" + first)
	if err != nil {
		return 0, err
	}
	return stat.EphemeralOwner, nil
}
