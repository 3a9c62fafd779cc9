package redlock_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/knownbreaks"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The suite on three real servers, each Locker on clients and connections of its own.
func TestConformance(t *testing.T) {
	opts := []testserver.RedisOption{testserver.RedisPersistent()}
	if testserver.ShiftsClocks {
		opts = append(opts, testserver.RedisClock())
	}
	q := newQuorum(t, 3, opts...)
	// Beside other packages a node of this machine may take more than a tenth of a TTL.
	h := harness.ForURL(2*time.Second, "redlock://%s?prefix=locker&node_timeout=280ms", q.addrs())
	h.Deviations = knownbreaks.Redlock()
	h.RW = nil // it has no shares
	harness.Servers(&h.Faults, q, func() { q.each((*testserver.RedisServer).Restart) })
	harness.Clocks(&h.Faults, q)
	h.Faults.FailOver = q.forgets
	h.Faults.Revoke = harness.RedlockRevoke(q)
	conformance.Run(t, h)
}

// forgets is Faults.FailOver: while one node is down the others grant the lock. One of these
// forgets that, and makes up a majority with the one that does not know.
func (q quorum) forgets(t conformance.TB) (fail func()) {
	forgetful, ignorant := q[1], q[2]
	ignorant.Kill()
	t.Cleanup(func() { ignorant.Restart() })
	return func() {
		forgetful.Kill()
		forgetful.Wipe()
		forgetful.Restart()
		ignorant.Restart()
	}
}
