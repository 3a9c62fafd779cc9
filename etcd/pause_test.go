//go:build unix

package etcd_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/testwait"
)

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	testwait.OnlyNightly(t, "it shows what etcd does, and no promise of ours")
	t.Parallel()
	majority(t, three(t)).LosesItsLeaderAfterAHolder(t)
}
