package testserver

import "testing"

func TestRedis_persistentDataOutliveAKill(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisPersistent())
	wantReply(t, s, "SET k v", "OK")
	s.Kill()
	s.Restart()
	wantReply(t, s, "GET k", "v")
	s.Kill()
	s.Wipe()
	s.Restart()
	wantReply(t, s, "GET k", "")
}

func TestSentinel_restartKeepsDataAndRoles(t *testing.T) {
	onlyInCheck(t)
	g := Sentinel(t, RedisPersistent())
	primary, replica := g.Primary(), g.Replica()
	wantReply(t, primary, "SET k v", "OK")
	g.Restart()
	if now := g.Primary(); now != primary {
		t.Errorf("the primary is %s, want %s", now.Addr(), primary.Addr())
	}
	wantReply(t, primary, "GET k", "v")
	wantReply(t, replica, "GET k", "v")
}

// As often as one likes, and whatever Detach has left in the files of those that were promoted.
func TestSentinel_whoLagsTakesOverAndTheOldPrimaryFollows(t *testing.T) {
	onlyInCheck(t)
	g := Sentinel(t, SentinelConfig("sentinel down-after-milliseconds testmaster 600000"))
	for _, value := range []string{"1", "2", "3"} {
		primary, replica := g.Primary(), g.Replica()
		wantReply(t, primary, "SET k "+value, "OK")
		replica.WaitSynced(primary)
		replica.Detach()
		wantReply(t, primary, "SET k later", "OK")
		primary.Kill()
		if now := g.Failover(); now != replica {
			t.Fatalf("the primary is %s, want %s", now.Addr(), replica.Addr())
		}
		wantReply(t, replica, "GET k", value)
		replica.Reattach()
		primary.Restart()
		primary.Follow(replica)
		wantReply(t, primary, "GET k", value)
	}
}

func TestCluster_restartKeepsData(t *testing.T) {
	onlyInCheck(t)
	c := Cluster(t, RedisPersistent())
	wantReply(t, c.PrimaryOf("k"), "SET k v", "OK")
	c.Restart()
	wantReply(t, c.PrimaryOf("k"), "GET k", "v")
}
