//go:build unix

package zookeeper_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/testwait"
)

// A process is stopped somewhere between two contacts, past its TTL, and another takes over. The first wakes, and
// knows before it does anything else.
func TestPause_whoWakesAfterItsTTLKnowsThatItHasLost(t *testing.T) {
	testwait.OnlyNightly(t, "the suite stops processes, too")
	t.Parallel()
	b := sessions(t)
	b.Pauses(t, "zookeeper://"+b.Addr+"?tick=100ms&ttl=2s&prefix="+space(t))
}

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	testwait.OnlyNightly(t, "it shows what ZooKeeper does, and no promise of ours")
	t.Parallel()
	majority(t, three(t)).LosesItsLeaderAfterAHolder(t)
}
