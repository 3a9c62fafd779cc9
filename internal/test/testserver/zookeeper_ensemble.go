package testserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ZooKeeperGroup is an ensemble of ZooKeeper servers.
type ZooKeeperGroup struct {
	group[*ZooKeeperServer]

	network *zooKeeperNetwork // with ZooKeeperPartitionable
}

// ZooKeeperEnsemble starts n servers that form an ensemble and returns when all of them answer.
func ZooKeeperEnsemble(t testing.TB, n int, opts ...ZooKeeperOption) *ZooKeeperGroup {
	t.Helper()
	var o zooKeeperOptions
	for _, opt := range opts {
		opt(&o)
	}
	g := &ZooKeeperGroup{group: group[*ZooKeeperServer]{t: t}}
	for i := range n {
		g.servers = append(g.servers, newZooKeeper(t, i+1, o))
	}
	withPorts(t, "ZooKeeper", 3*n, func(ports []int) error {
		for i, s := range g.servers {
			s.port, s.quorumPort, s.electionPort = ports[3*i], ports[3*i+1], ports[3*i+2]
		}
		if o.partitionable {
			g.network = newZooKeeperNetwork(t, g.servers)
		}
		return g.start(o.config)
	})
	return g
}

// start starts the ensemble. After an error no server runs, and nothing is left of them.
func (g *ZooKeeperGroup) start(config []string) error {
	for _, s := range g.servers {
		if err := s.configure(g.members(s), config); err != nil {
			return err
		}
	}
	err := startAll(g.servers)
	if err == nil {
		return nil
	}
	for _, s := range g.servers {
		s.kill()
		err = errors.Join(err, os.RemoveAll(s.dataDir()))
	}
	return err
}

// members returns the lines of viewer's configuration that say where the members are. There are none
// for a server on its own.
func (g *ZooKeeperGroup) members(viewer *ZooKeeperServer) []string {
	if len(g.servers) == 1 {
		return nil
	}
	lines := make([]string, len(g.servers))
	for i, s := range g.servers {
		quorum, election := s.quorumPort, s.electionPort
		if g.network != nil && s != viewer {
			quorum, election = g.network.path(viewer, s).ports()
		}
		lines[i] = fmt.Sprintf("server.%d=127.0.0.1:%d:%d", s.id, quorum, election)
	}
	return lines
}

// URL returns "zookeeper://" with all members.
func (g *ZooKeeperGroup) URL() string { return "zookeeper://" + strings.Join(g.Addrs(), ",") }

// Leader waits until one of the members leads and all others follow, and returns the one. It leaves out
// those that do not run, were stopped, or are isolated.
func (g *ZooKeeperGroup) Leader() *ZooKeeperServer {
	g.t.Helper()
	leader, _ := g.settled()
	return leader
}

// Followers waits like Leader and returns the others.
func (g *ZooKeeperGroup) Followers() []*ZooKeeperServer {
	g.t.Helper()
	_, followers := g.settled()
	return followers
}

func (g *ZooKeeperGroup) settled() (leader *ZooKeeperServer, followers []*ZooKeeperServer) {
	g.t.Helper()
	await(g.t, "ZooKeeper has a leader whom the others follow", func() (err error) {
		leader, followers, err = g.roles()
		return err
	})
	return leader, followers
}

func (g *ZooKeeperGroup) roles() (leader *ZooKeeperServer, followers []*ZooKeeperServer, err error) {
	for _, s := range g.servers {
		if !s.responsive() || g.isolated(s) {
			continue
		}
		role, err := s.role()
		switch {
		case err != nil:
			return nil, nil, err
		case role == "follower":
			followers = append(followers, s)
		case leader != nil:
			return nil, nil, fmt.Errorf("%s is %s, and so is %s", s.name, role, leader.name)
		default:
			leader = s // or standalone
		}
	}
	if leader == nil {
		return nil, nil, errors.New("nobody leads")
	}
	return leader, followers, nil
}

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

// EndSession ends a session as if its client had closed it, and returns when there is no such session.
func (s *ZooKeeperServer) EndSession(id int64) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%s has no session %#x", s.name, id), func() error { return s.endSession(id) })
}

// endSession takes the session up on a connection of its own, and closes it there, unless its client is faster and takes it
// back. It returns nil if there is no such session.
func (s *ZooKeeperServer) endSession(id int64) error {
	const timeout = 5 * time.Second
	conn, err := net.DialTimeout("tcp4", s.Addr(), timeout)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	connect := make([]byte, 12)                             // version of the protocol, last transaction seen
	connect = binary.BigEndian.AppendUint32(connect, 10000) // time-out, ms
	connect = binary.BigEndian.AppendUint64(connect, uint64(id))
	password := sessionPassword(id)
	connect = binary.BigEndian.AppendUint32(connect, uint32(len(password)))
	connect = append(connect, password...)
	const closeSession = -11
	closing := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, 1<<32+closeSession) // of request 1
	for _, packet := range [][]byte{connect, closing} {
		length := binary.BigEndian.AppendUint32(nil, uint32(len(packet)))
		if _, err := conn.Write(append(length, packet...)); err != nil {
			return err
		}
	}
	granted := make([]byte, 12) // length of the packet, version of the protocol, time-out
	if _, err := io.ReadFull(conn, granted); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(granted[8:]) == 0 {
		return nil
	}
	_, err = io.Copy(io.Discard, conn) // until the server closes it
	return errors.Join(errors.New("there was one"), err)
}

// sessionPassword is what the servers derive from a session's id alone (ZooKeeperServer.generatePasswd): 16 bytes of
// Java's generator, which is a linear congruential one of 48 bits.
func sessionPassword(id int64) []byte {
	const secret, multiplier, mask = 0xB3415C00, 0x5DEECE66D, 1<<48 - 1
	state := (uint64(id) ^ secret ^ multiplier) & mask
	var password []byte
	for range 4 {
		state = (state*multiplier + 0xB) & mask
		password = binary.LittleEndian.AppendUint32(password, uint32(state>>16))
	}
	return password
}
