//go:build unix

package zookeeper_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/testwait"
)

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	testwait.OnlyNightly(t, "it shows what ZooKeeper does, and no promise of ours")
	t.Parallel()
	majority(t, three(t)).LosesItsLeaderAfterAHolder(t)
}
