package testserver

import "testing"

func TestSentinel_killedPrimaryIsReplaced(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	g := Sentinel(t)
	old, replica := g.Primary(), g.Servers()[1]
	if old != g.Servers()[0] {
		t.Errorf("%s is the primary at the start, want the first server, %s", old.Addr(), g.Servers()[0].Addr())
	}
	wantReply(t, old, "SET k v", "OK")
	replica.WaitSynced(old)
	old.Kill()
	now := g.WaitFailover(old)
	if now != replica || g.Primary() != replica {
		t.Errorf("%s has taken over, want %s", now.Addr(), replica.Addr())
	}
	wantReply(t, now, "GET k", "v")
	wantReply(t, now, "SET k w", "OK")
}

func TestSentinel_stoppedPrimaryIsReplaced(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	g := Sentinel(t, RedisReplicas(2))
	old := g.Primary()
	old.Stop()
	now := g.WaitFailover(old)
	wantReply(t, now, "SET k v", "OK")
	old.Continue()
	wantReply(t, old, "SET k w", "OK") // a split brain
}

func TestSentinel_failoverByHand(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	g := Sentinel(t, RedisReplicas(2))
	old := g.Primary()
	now := g.Failover()
	if now == old || now != g.Primary() {
		t.Errorf("%s is the primary, was %s; the sentinels say %s", now.Addr(), old.Addr(), g.Primary().Addr())
	}
	for _, s := range g.Servers() {
		if s != old && s != now {
			s.WaitSynced(now)
		}
	}
}

// The sentinels promote a replica that never got what the primary had acknowledged.
func TestSentinel_detachedReplicaIsPromotedWithoutTheLastWrites(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	g := Sentinel(t)
	old, replica := g.Primary(), g.Servers()[1]
	wantReply(t, old, "SET before v", "OK")
	replica.WaitSynced(old)
	replica.Detach()
	wantReply(t, old, "SET after v", "OK")
	old.Kill()
	now := g.WaitFailover(old)
	wantReply(t, now, "GET before", "v")
	wantReply(t, now, "GET after", "")
}

func TestSentinel_aSentinelLessIsNoMatter(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	g := Sentinel(t)
	g.Sentinels()[0].Kill()
	g.Sentinels()[1].Stop()
	old := g.Primary()
	g.Sentinels()[1].Continue()
	g.Sentinels()[2].Restart() // it has written down what it knew
	if s := g.Primary(); s != old {
		t.Errorf("%s is the primary, want %s still", s.Addr(), old.Addr())
	}
	old.Kill()
	g.WaitFailover(old)
}

func TestSentinel_usersOfServersAndOfSentinels(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	for name, tls := range map[string][]RedisOption{"plain": nil, "TLS": {RedisTLS()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := Sentinel(t, append(tls, RedisConfig("requirepass secret"),
				SentinelConfig("user default off", "user watcher on >hidden +@all"))...)
			if len(g.Addrs()) != 3 || g.Addrs()[0] != g.Sentinels()[0].Addr() {
				t.Errorf("addresses are %v", g.Addrs())
			}
			wantRefusal(t, g.Primary(), "GET k", "NOAUTH")
			wantRefusal(t, g.Sentinels()[0], "SENTINEL MASTERS", "NOAUTH")
			if ca := g.Sentinels()[0].CAFile; ca != g.Primary().CAFile || (ca != "") != (tls != nil) {
				t.Errorf("the sentinels' authority is %q, the servers' %q", ca, g.Primary().CAFile)
			}
			conn, err := g.Sentinels()[0].dial()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			wantAnswer(t, conn, "AUTH watcher hidden", "OK")

			old := g.Primary()
			old.Kill()
			g.WaitFailover(old)
		})
	}
}
