package testserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// ZooKeeperGroup is an ensemble of ZooKeeper servers.
type ZooKeeperGroup struct {
	t       testing.TB
	servers []*ZooKeeperServer
	network *zooKeeperNetwork // with ZooKeeperPartitionable
}

// ZooKeeperEnsemble starts n servers that form an ensemble and returns when all of them answer.
func ZooKeeperEnsemble(t testing.TB, n int, opts ...ZooKeeperOption) *ZooKeeperGroup {
	t.Helper()
	var o zooKeeperOptions
	for _, opt := range opts {
		opt(&o)
	}
	g := &ZooKeeperGroup{t: t}
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

// Servers returns the members in the order of their start.
func (g *ZooKeeperGroup) Servers() []*ZooKeeperServer { return slices.Clone(g.servers) }

// Addrs returns the addresses of the members for clients.
func (g *ZooKeeperGroup) Addrs() []string { return addrs(g.servers) }

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

// Restart kills all members and starts them again, with the data that they have.
func (g *ZooKeeperGroup) Restart() {
	g.t.Helper()
	for _, s := range g.servers {
		s.kill()
	}
	if err := startAll(g.servers); err != nil {
		g.t.Fatalf("testserver: ZooKeeper did not start again: %v", err)
	}
}
