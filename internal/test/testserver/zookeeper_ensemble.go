package testserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// ZooKeeperGroup is an ensemble of ZooKeeper servers.
type ZooKeeperGroup struct {
	group[*ZooKeeperServer]
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
		return g.start(o.config)
	})
	return g
}

// start starts the ensemble. After an error no server runs, and nothing is left of them.
func (g *ZooKeeperGroup) start(config []string) error {
	for _, s := range g.servers {
		if err := s.configure(g.members(), config); err != nil {
			return err
		}
	}
	return startAnew(g.servers)
}

// members returns the lines of the configuration that say where the members are. There are none for a
// server on its own.
func (g *ZooKeeperGroup) members() []string {
	if len(g.servers) == 1 {
		return nil
	}
	lines := make([]string, len(g.servers))
	for i, s := range g.servers {
		lines[i] = fmt.Sprintf("server.%d=127.0.0.1:%d:%d", s.id, s.quorumPort, s.electionPort)
	}
	return lines
}

// URL returns "zookeeper://" with all members.
func (g *ZooKeeperGroup) URL() string { return "zookeeper://" + strings.Join(g.Addrs(), ",") }

// Leader waits until one of the members leads and all others follow, and returns the one. It leaves out
// those that do not run, or were stopped.
func (g *ZooKeeperGroup) Leader() *ZooKeeperServer {
	g.t.Helper()
	return settled(g.t, "ZooKeeper has a leader whom the others follow", func() (leader *ZooKeeperServer, err error) {
		for _, s := range g.servers {
			if !s.responsive() {
				continue
			}
			role, err := s.role()
			switch {
			case err != nil:
				return nil, err
			case role == "follower":
			case leader != nil:
				return nil, fmt.Errorf("%s is %s, and so is %s", s.name, role, leader.name)
			default:
				leader = s // or standalone
			}
		}
		if leader == nil {
			return nil, errors.New("nobody leads")
		}
		return leader, nil
	})
}

// Followers waits like Leader and returns the others.
func (g *ZooKeeperGroup) Followers() []*ZooKeeperServer {
	g.t.Helper()
	leader := g.Leader()
	return slices.DeleteFunc(g.Servers(), func(s *ZooKeeperServer) bool { return s == leader || !s.responsive() })
}

// EndSession ends a session as if its client had closed it, and returns when there is no such session.
func (s *ZooKeeperServer) EndSession(id int64) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%s has no session %#x", s.name, id), func() error { return s.endSession(id) })
}

// endSession takes the session up on a connection of its own, and closes it there, unless its client is faster and takes it
// back. It returns nil if there is no such session.
func (s *ZooKeeperServer) endSession(id int64) error {
	conn, err := dial(s.port, 5*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
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
