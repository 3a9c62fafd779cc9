package testserver

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	shards         = 3
	slots          = 16384
	clusterBusPort = 10000 // above a node's own
)

// RedisCluster is a Redis Cluster of three primaries with their replicas, one of which takes over
// from a primary that does not answer the others for a second.
type RedisCluster struct {
	group[*RedisServer] // the first three were the primaries at the start

	ids []string
}

// Cluster starts three primaries, each with a replica unless RedisReplicas says otherwise, and
// returns when all of them agree, every slot can be written and the replicas are in step. Options
// apply to every node; with RedisTLS they have certificates of one authority.
func Cluster(t testing.TB, opts ...RedisOption) *RedisCluster {
	t.Helper()
	o := newRedisOptions(opts)
	c := &RedisCluster{group: group[*RedisServer]{t: t}}
	withPorts(t, "cluster", shards*(1+o.replicas), func(ports []int) error {
		killAll(c.servers) // of an attempt that found a port taken
		c.prepare(ports, o)
		return c.start()
	})
	await(t, "all nodes of the cluster are connected", c.connected)
	for shard, want := range c.servers[:shards] {
		c.awaitOwner(shard*slots/shards, want)
	}
	for i, s := range c.servers[shards:] {
		s.WaitSynced(c.servers[i%shards])
	}
	return c
}

func (c *RedisCluster) prepare(ports []int, o redisOptions) {
	c.t.Helper()
	c.servers, c.ids = nil, nil
	for _, port := range ports {
		s := newRedis(c.t)
		s.port = port
		s.prepare(o, "cluster-enabled yes", "cluster-announce-ip 127.0.0.1", "cluster-node-timeout 1000",
			// A replica takes over however old its data are.
			"cluster-replica-validity-factor 0")
		o.certs = s.Certificates
		// Its dir may change while it is prepared.
		s.args = append(s.args, s.portFlag(), strconv.Itoa(port),
			"--cluster-config-file", filepath.Join(s.dir, "nodes.conf"))
		c.servers, c.ids = append(c.servers, s), append(c.ids, newNodeID())
	}
}

// start starts nodes that already know each other. For two seconds primaries accept no writes, in
// case they were replaced while they were down.
func (c *RedisCluster) start() error {
	c.t.Helper()
	var shardIDs []string
	if c.servers[0].knowsShardIDs() {
		shardIDs = []string{newNodeID(), newNodeID(), newNodeID()}
	}
	for i, s := range c.servers {
		s.writeFile("nodes.conf", c.nodesConf(i, shardIDs))
	}
	return startAll(c.servers)
}

// nodesConf returns the i-th node's own file of the cluster: the first nodes are the primaries.
func (c *RedisCluster) nodesConf(i int, shardIDs []string) []string {
	var conf []string
	for j, node := range c.servers {
		shard := j % shards
		flags, primary, owned, shardID := "slave", c.ids[shard], "", ""
		if j < shards {
			flags, primary = "master", "-"
			owned = fmt.Sprintf(" %d-%d", shard*slots/shards, (shard+1)*slots/shards-1)
		}
		if shardIDs != nil {
			shardID = ",,shard-id=" + shardIDs[shard]
		}
		if i == j {
			flags = "myself," + flags
		}
		conf = append(conf, fmt.Sprintf("%s 127.0.0.1:%d@%d%s %s %s 0 0 %d connected%s",
			c.ids[j], node.port, node.port+clusterBusPort, shardID, flags, primary, shard+1, owned))
	}
	return append(conf, fmt.Sprintf("vars currentEpoch %d lastVoteEpoch 0", shards))
}

// knowsShardIDs reports whether the server's version has shard ids, as since 7.2. Nodes would invent
// them if they were not told, and not start again if they had not yet agreed on them.
func (s *RedisServer) knowsShardIDs() bool { return s.since(7, 2) }

// PrimaryOf returns the node that serves key, and waits until all nodes agree on it and it accepts
// writes. Nodes that were killed or stopped do not count, here and below.
func (c *RedisCluster) PrimaryOf(key string) *RedisServer {
	c.t.Helper()
	return c.WaitPrimary(key, nil)
}

// WaitPrimary is PrimaryOf for when another node than old is to take over from it.
func (c *RedisCluster) WaitPrimary(key string, old *RedisServer) *RedisServer {
	c.t.Helper()
	slot := c.slot(key)
	return settled(c.t, fmt.Sprintf("the nodes agree who serves %q", key), func() (*RedisServer, error) {
		primary, err := c.agreed(slot)
		if err == nil && primary == old {
			err = errors.New("it is " + old.Addr() + " still")
		}
		return primary, err
	})
}

func (c *RedisCluster) awaitOwner(slot int, want *RedisServer) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("all nodes know that %s serves slot %d", want.Addr(), slot), func() error {
		owner, err := c.agreed(slot)
		if err == nil && owner != want {
			err = errors.New("it is " + owner.Addr())
		}
		return err
	})
}

// ReplicaOf returns a replica of the node that serves key, one that runs and that all nodes know as
// such.
func (c *RedisCluster) ReplicaOf(key string) *RedisServer {
	c.t.Helper()
	primary := c.PrimaryOf(key)
	return settled(c.t, primary.Addr()+" has a replica", func() (*RedisServer, error) {
		views, err := c.views()
		if err != nil {
			return nil, err
		}
		for i, s := range c.servers {
			unknown := func(v clusterView) bool { return v[c.ids[i]].primary != c.id(primary) }
			if s.responsive() && !slices.ContainsFunc(views, unknown) {
				return s, nil
			}
		}
		return nil, errors.New("it has none that runs")
	})
}

// OtherPrimary returns a primary that does not serve key.
func (c *RedisCluster) OtherPrimary(key string) *RedisServer {
	c.t.Helper()
	primary := c.PrimaryOf(key)
	view, err := primary.clusterView()
	check(c.t, "cluster", err)
	for i, s := range c.servers {
		if s != primary && s.responsive() && len(view[c.ids[i]].slots) > 0 {
			return s
		}
	}
	c.t.Fatalf("testserver: cluster: %s is the only primary that runs", primary.Addr())
	return nil
}

// Failover makes a replica take the place of the node that serves key, in good order and without
// losing data, and returns it when all agree.
func (c *RedisCluster) Failover(key string) *RedisServer {
	c.t.Helper()
	old, replica := c.PrimaryOf(key), c.ReplicaOf(key)
	replica.WaitSynced(old)
	slot := c.slot(key)
	var asked time.Time
	await(c.t, replica.Addr()+" takes over from "+old.Addr(), func() error {
		// The replica gives up after five seconds, for one because the primaries do not vote for a
		// shard twice in two.
		if time.Since(asked) > askAgain {
			if _, err := replica.do("CLUSTER", "FAILOVER"); err != nil {
				return err
			}
			asked = time.Now()
		}
		owner, err := c.agreed(slot)
		if err == nil && owner == old {
			err = errors.New("it has not yet")
		}
		return err
	})
	return replica
}

func (c *RedisCluster) node(id string) *RedisServer {
	if i := slices.Index(c.ids, id); i >= 0 {
		return c.servers[i]
	}
	return nil
}

func (c *RedisCluster) id(s *RedisServer) string {
	c.t.Helper()
	i := slices.Index(c.servers, s)
	if i < 0 {
		c.t.Fatalf("testserver: %s is no node of this cluster", s.Addr())
	}
	return c.ids[i]
}

// SlotMove is a slot of a cluster on its way from one primary to another. Until it is finished the
// source serves the keys that it has, and sends clients that ask for others to the target (ASK).
type SlotMove struct {
	c        *RedisCluster
	slot     string // a number
	from, to *RedisServer
}

// MoveSlot moves the slot of key, with all keys in it, to another primary, and returns when all
// nodes know.
func (c *RedisCluster) MoveSlot(key string, to *RedisServer) {
	c.t.Helper()
	c.StartMove(key, to).Finish()
}

// StartMove begins to move the slot of key to another primary. No key has moved when it returns.
func (c *RedisCluster) StartMove(key string, to *RedisServer) *SlotMove {
	c.t.Helper()
	m := &SlotMove{c: c, slot: strconv.Itoa(c.slot(key)), from: c.PrimaryOf(key), to: to}
	if m.from == to {
		c.t.Fatalf("testserver: %s serves %q already", to.Addr(), key)
	}
	setSlot := func(at *RedisServer, state string, other *RedisServer) {
		await(c.t, at.Addr()+" knows of "+other.Addr()+" that it is a primary", func() error { // which gossip tells it
			_, err := at.do("CLUSTER", "SETSLOT", m.slot, state, c.id(other))
			return err
		})
	}
	setSlot(to, "IMPORTING", m.from)
	setSlot(m.from, "MIGRATING", to)
	return m
}

// MoveKeys moves the keys that are in the slot. The source now sends everybody on (ASK).
func (m *SlotMove) MoveKeys() {
	m.c.t.Helper()
	for {
		keys, _ := m.from.must("CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.MoveKey(fmt.Sprint(key))
		}
	}
}

// MoveKey moves one key. It fails if the target has a key of that name, as `redis-cli --cluster
// reshard` does.
func (m *SlotMove) MoveKey(key string) {
	m.c.t.Helper()
	m.from.must("MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "AUTH2", operator, operator, "KEYS", key)
}

// Finish moves the keys that are left and makes the target the owner of the slot (MOVED). It returns
// when all nodes know.
func (m *SlotMove) Finish() {
	m.c.t.Helper()
	m.MoveKeys()
	target := m.c.id(m.to)
	// The target first: between the two, the source knows where to send clients.
	for _, s := range []*RedisServer{m.to, m.from} {
		s.must("CLUSTER", "SETSLOT", m.slot, "NODE", target)
	}
	slot, _ := strconv.Atoi(m.slot)
	m.c.awaitOwner(slot, m.to)
}

// slot returns the slot of key.
func (c *RedisCluster) slot(key string) int {
	c.t.Helper()
	i := slices.IndexFunc(c.servers, (*RedisServer).responsive)
	if i < 0 {
		c.t.Fatalf("testserver: cluster: no node runs")
	}
	return int(c.servers[i].must("CLUSTER", "KEYSLOT", key).(int64))
}

// clusterOK returns nil when the server accepts keys as far as the cluster is concerned.
func (s *RedisServer) clusterOK() error {
	state, err := s.Info("CLUSTER", "INFO")
	if err == nil && state["cluster_state"] != "ok" {
		err = errors.New("cluster_state is " + state["cluster_state"])
	}
	return err
}

// views returns what each node that runs says of all, if it is content with that.
func (c *RedisCluster) views() ([]clusterView, error) {
	var views []clusterView
	for _, s := range c.servers {
		if !s.responsive() {
			continue
		}
		err := s.clusterOK()
		if err == nil {
			var view clusterView
			view, err = s.clusterView()
			views = append(views, view)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Addr(), err)
		}
	}
	return views, nil
}

// connected returns nil when each node has a connection to each other.
func (c *RedisCluster) connected() error {
	for _, s := range c.servers {
		view, err := s.clusterView()
		if err != nil {
			return err
		}
		for _, id := range c.ids {
			if node := view[id]; node.link != "connected" || strings.Contains(node.flags, "fail") {
				return fmt.Errorf("%s reports that %s is %q, %q", s.Addr(), c.node(id).Addr(), node.link, node.flags)
			}
		}
	}
	return nil
}

// agreed returns the primary of slot, of which all nodes that run must say the same.
func (c *RedisCluster) agreed(slot int) (*RedisServer, error) {
	views, err := c.views()
	if err != nil {
		return nil, err
	}
	var owners []string
	for _, view := range views {
		owners = append(owners, view.owner(slot))
	}
	if owners = slices.Compact(owners); len(owners) != 1 {
		return nil, fmt.Errorf("slot %d belongs to one of %q", slot, owners)
	}
	s := c.node(owners[0])
	if s == nil || !s.responsive() {
		return nil, fmt.Errorf("slot %d belongs to %q, no node of ours that runs", slot, owners[0])
	}
	return s, nil
}

// clusterView is what one node knows of all, by their ids.
type clusterView map[string]clusterNode

type clusterNode struct {
	flags   string // commas between them
	primary string // of a replica: its id
	link    string // connected, disconnected
	slots   [][2]int
}

func (v clusterView) owner(slot int) string {
	for id, node := range v {
		for _, r := range node.slots {
			if r[0] <= slot && slot <= r[1] {
				return id
			}
		}
	}
	return ""
}

// clusterView parses CLUSTER NODES: id address flags primary ping pong epoch link slots…
func (s *RedisServer) clusterView() (clusterView, error) {
	text, err := s.doText("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	view := make(clusterView)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES says %q", line)
		}
		node := clusterNode{flags: fields[2], primary: fields[3], link: fields[7]}
		for _, r := range fields[8:] {
			var from, to int
			switch n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n {
			case 0: // a slot under way, "[slot->-id]"
			case 1:
				node.slots = append(node.slots, [2]int{from, from})
			default:
				node.slots = append(node.slots, [2]int{from, to})
			}
		}
		view[fields[0]] = node
	}
	return view, nil
}
