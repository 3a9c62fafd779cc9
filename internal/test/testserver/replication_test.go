package testserver

import (
	"os"
	"strings"
	"testing"
)

func TestPromote(t *testing.T) {
	onlyInCheck(t)
	primary := Redis(t)
	replica := Redis(t, RedisReplicaOf(primary))
	wantReply(t, primary, "SET k v", "OK")
	wantRefusal(t, replica, "SET k w", "READONLY")
	replica.WaitSynced(primary)
	replica.Promote()
	wantReply(t, primary, "SET k late", "OK")
	wantReply(t, replica, "GET k", "v")
	wantReply(t, replica, "SET k w", "OK")
}

func TestDetach_whatIsWrittenAfterDoesNotArriveBeforeReattach(t *testing.T) {
	onlyInCheck(t)
	primary := Redis(t)
	replica := Redis(t, RedisReplicaOf(primary))
	replica.Detach()
	wantReply(t, primary, "SET k v", "OK")
	// It tries to come back at once.
	eventually(t, "the primary has refused the replica", func() bool {
		log, err := os.ReadFile(replica.logFile())
		return err == nil && strings.Contains(string(log), "WRONGPASS")
	})
	wantReply(t, replica, "GET k", "")
	wantRefusal(t, replica, "SET k w", "READONLY")

	replica.Reattach()
	replica.WaitSynced(primary)
	wantReply(t, replica, "GET k", "v")
}

func TestWaitSynced_withPasswordAndTLS(t *testing.T) {
	onlyInCheck(t)
	primary := Redis(t, RedisTLS(), RedisArgs("--requirepass", "secret"))
	replica := Redis(t, RedisReplicaOf(primary))
	for range 20 {
		primary.must("INCR", "k")
		replica.WaitSynced(primary)
		if got, want := replica.must("GET", "k"), primary.must("GET", "k"); got != want {
			t.Fatalf("a replica in step says %v, the primary %v", got, want)
		}
	}
}
