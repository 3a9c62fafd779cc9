package testserver

import (
	"net"
	"strings"
	"testing"
)

// wantRefusal expects an error reply that starts with want.
func wantRefusal(t *testing.T, s *RedisServer, command, want string) {
	t.Helper()
	if got, err := s.ask(command); err != nil || !strings.HasPrefix(got, "-"+want) {
		t.Errorf("%s: got %q, %v; want an error, %s", command, got, err, want)
	}
}

func TestCluster_everyPrimaryServesItsKeysAtOnce(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	for _, replicas := range []int{0, 1} {
		c := Cluster(t, RedisReplicas(replicas))
		if got, want := len(c.Addrs()), 3+3*replicas; got != want || len(c.Servers()) != want {
			t.Errorf("with %d replicas there are %d addresses and %d servers, want %d",
				replicas, got, len(c.Servers()), want)
		}
		for i, key := range []string{"b", "c", "a"} { // slots 3300, 7365, 15495
			if s := c.PrimaryOf(key); s != c.nodes[i] {
				t.Errorf("%q is served by %s, want node %d, %s", key, s.Addr(), i, c.nodes[i].Addr())
			}
			wantReply(t, c.nodes[i], "SET "+key+" v", "OK")
			wantRefusal(t, c.OtherPrimary(key), "GET "+key, "MOVED")
			if replicas > 0 {
				replica := c.ReplicaOf(key)
				replica.WaitSynced(c.nodes[i])
				if n := replica.must("DBSIZE"); n != int64(1) {
					t.Errorf("the replica for %q has %v keys, want 1", key, n)
				}
			}
		}
		for _, s := range c.nodes {
			if nodes, err := s.doText("CLUSTER", "NODES"); strings.Count(nodes, "\n") != len(c.nodes) {
				t.Errorf("%s knows others than the %d nodes, %v:\n%s", s.Addr(), len(c.nodes), err, nodes)
			}
		}
	}
}

// The replica has what was written until it was detached.
func TestCluster_replicaOfAKilledPrimaryTakesOver(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	c := Cluster(t)
	old, replica := c.PrimaryOf("k"), c.ReplicaOf("k")
	wantReply(t, old, "SET k v", "OK")
	replica.WaitSynced(old)
	replica.Detach()
	wantReply(t, old, "SET k w", "OK")
	old.Kill()
	now := c.WaitPrimary("k", old)
	if now != replica {
		t.Errorf("%s has taken over, want %s", now.Addr(), replica.Addr())
	}
	wantReply(t, now, "GET k", "v")
	wantReply(t, now, "SET k x", "OK")

	old.Restart()
	old.WaitSynced(now)
	if s := c.ReplicaOf("k"); s != old {
		t.Errorf("%s is the replica after a restart, want %s", s.Addr(), old.Addr())
	}
}

func TestCluster_failoverByHand(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	c := Cluster(t)
	first, second := c.PrimaryOf("k"), c.ReplicaOf("k")
	wantReply(t, first, "SET k v", "OK")
	for _, want := range []*RedisServer{second, first} {
		now := c.Failover("k")
		if now != want || c.PrimaryOf("k") != want {
			t.Fatalf("%s has taken over, want %s", now.Addr(), want.Addr())
		}
		wantReply(t, now, "GET k", "v")
		wantReply(t, now, "SET k v", "OK")
	}
}

func TestCluster_moveSlot(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	c := Cluster(t, RedisReplicas(0))
	from, to := c.PrimaryOf("{k}1"), c.OtherPrimary("{k}1")
	wantReply(t, from, "SET {k}1 v", "OK")
	wantReply(t, from, "SET {k}2 v", "OK")

	m := c.StartMove("k", to)
	wantReply(t, from, "GET {k}1", "v")
	wantRefusal(t, from, "GET {k}3", "ASK")
	wantRefusal(t, from, "MGET {k}1 {k}3", "TRYAGAIN")
	m.MoveKeys()
	wantRefusal(t, from, "GET {k}1", "ASK")
	wantRefusal(t, to, "GET {k}1", "MOVED") // without ASKING
	m.Finish()
	wantRefusal(t, from, "GET {k}1", "MOVED")
	wantReply(t, to, "MGET {k}1 {k}2", "[v v]")
	if s := c.PrimaryOf("k"); s != to {
		t.Errorf("%s serves the slot, want %s", s.Addr(), to.Addr())
	}
	c.MoveSlot("k", from)
	wantReply(t, from, "MGET {k}1 {k}2", "[v v]")
}

func TestCluster_tlsAndPassword(t *testing.T) {
	onlyInCheck(t)
	t.Parallel()
	c := Cluster(t, RedisTLS(), RedisConfig("requirepass secret"))
	old := c.PrimaryOf("k")
	wantRefusal(t, old, "SET k v", "NOAUTH")
	old.must("SET", "k", "v")
	now := c.Failover("k")
	if now.CAFile != old.CAFile {
		t.Errorf("nodes have authorities of their own, %s and %s", now.CAFile, old.CAFile)
	}
	to := c.OtherPrimary("k")
	c.MoveSlot("k", to)
	if v := to.must("GET", "k"); v != "v" {
		t.Errorf("after a failover and a move the value is %v, want v", v)
	}
}

func TestCluster_startSaysThatABusPortIsTaken(t *testing.T) {
	onlyInCheck(t)
	ports := []int{reservePort(t), reservePort(t), reservePort(t)}
	bus, err := net.Listen("tcp4", loopback(ports[1]+clusterBusPort))
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = bus.Close() }()
	c := &RedisCluster{t: t}
	c.prepare(ports, redisOptions{})
	if err := c.start(); !isPortTaken(err) {
		t.Errorf("it said: %v", err)
	}
}

// By the specification, and by the server itself.
func TestKeySlot(t *testing.T) {
	onlyInCheck(t)
	for key, want := range map[string]int{
		"":                     0,
		"123456789":            12739,
		"foo":                  12182,
		"{user1000}.following": keySlot("user1000"),
		"foo{}{bar}":           8363,
		"foo{{bar}}zap":        keySlot("{bar"),
		"foo{bar}{zap}":        keySlot("bar"),
	} {
		if got := keySlot(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
	s := Redis(t, RedisArgs("--cluster-enabled", "yes"))
	for _, key := range []string{"a", "{}", "{a}", "}{b}", "x{{c}}", "foo{}{bar}", "foo{bar"} {
		if want := s.must("CLUSTER", "KEYSLOT", key); int64(keySlot(key)) != want {
			t.Errorf("slot of %q is %d, and %v for the server", key, keySlot(key), want)
		}
	}
}
