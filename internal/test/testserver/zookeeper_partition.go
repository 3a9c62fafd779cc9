package testserver

import (
	"net"
	"strconv"
	"testing"
)

// zooKeeperNetwork is what lies between the members of an ensemble. Each member is told that the others
// are at proxies, other ones than any other member is told.
type zooKeeperNetwork struct {
	paths    map[[2]int]*zooKeeperPath // by the ids of who dials and who is dialled
	isolated map[int]bool              // by id
}

// zooKeeperPath is how one member reaches another.
type zooKeeperPath struct{ quorum, election *Proxy }

func newZooKeeperNetwork(t testing.TB, servers []*ZooKeeperServer) *zooKeeperNetwork {
	t.Helper()
	n := &zooKeeperNetwork{paths: make(map[[2]int]*zooKeeperPath), isolated: make(map[int]bool)}
	for _, to := range servers {
		a := newAnnouncements(t, to, n)
		for _, from := range servers {
			if from == to {
				continue
			}
			n.paths[[2]int{from.id, to.id}] = &zooKeeperPath{
				quorum:   NewProxy(t, loopback(to.quorumPort)),
				election: NewProxy(t, a.addr),
			}
		}
	}
	return n
}

func (n *zooKeeperNetwork) path(from, to *ZooKeeperServer) *zooKeeperPath {
	return n.paths[[2]int{from.id, to.id}]
}

func (p *zooKeeperPath) ports() (quorum, election int) { return p.quorum.port(), p.election.port() }

func (p *Proxy) port() int {
	_, port, _ := net.SplitHostPort(p.Addr())
	n, _ := strconv.Atoi(port)
	return n
}

// around calls f with every proxy that leads to s or away from it.
func (n *zooKeeperNetwork) around(s *ZooKeeperServer, f func(*Proxy)) {
	for ends, path := range n.paths {
		if ends[0] == s.id || ends[1] == s.id {
			f(path.quorum)
			f(path.election)
		}
	}
}

// Isolate cuts s off from the other members until Heal. Clients still reach it. Connections stay open, new ones can be made, and nothing arrives until Heal, when all that
// was sent arrives late, as TCP would have it. It takes ZooKeeperPartitionable.
func (g *ZooKeeperGroup) Isolate(s *ZooKeeperServer) {
	g.t.Helper()
	if g.network == nil {
		g.t.Fatal("testserver: this takes ZooKeeperPartitionable")
	}
	g.network.isolated[s.id] = true
	g.network.around(s, func(p *Proxy) {
		p.HoldRequests(true)
		p.HoldReplies(true)
	})
}

// Heal ends all that Isolate did. It does not wait for the members to find together, for
// which there is [ZooKeeperGroup.Leader].
func (g *ZooKeeperGroup) Heal() {
	g.t.Helper()
	for _, s := range g.servers {
		if !g.isolated(s) {
			continue
		}
		g.network.around(s, func(p *Proxy) {
			p.ReleaseRequests()
			p.ReleaseReplies()
		})
	}
	if g.network != nil {
		clear(g.network.isolated)
	}
}

func (g *ZooKeeperGroup) isolated(s *ZooKeeperServer) bool {
	return g.network != nil && g.network.isolated[s.id]
}
