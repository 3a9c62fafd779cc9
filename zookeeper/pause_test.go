//go:build unix

package zookeeper_test

import (
	"testing"

	"github.com/go-locker/locker/internal/child"
)

func TestHolder(t *testing.T) { child.Hold(t) }

// A process is stopped somewhere between two contacts, past its TTL, and another takes over. The first wakes, and
// knows before it does anything else.
func TestPause_whoWakesAfterItsTTLKnowsThatItHasLost(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	b.Pauses(t, "zookeeper://"+b.Addr+"?tick=100ms&ttl=2s")
}

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	t.Parallel()
	majority(t).LosesItsLeaderAfterAHolder(t)
}
