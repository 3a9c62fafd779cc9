package testserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// EtcdGroup is a cluster of etcd servers.
type EtcdGroup struct {
	t       testing.TB
	servers []*EtcdServer
	options etcdOptions
	added   int
	network *etcdNetwork // between the members, with EtcdPartitionable
}

// EtcdCluster starts n servers that form a cluster and returns when all of them answer.
func EtcdCluster(t testing.TB, n int, opts ...EtcdOption) *EtcdGroup {
	t.Helper()
	var o etcdOptions
	for _, opt := range opts {
		opt(&o)
	}
	g := &EtcdGroup{t: t, options: o}
	var certs *certificates
	if o.tls {
		var err error
		if certs, err = writeCertificates(t.TempDir()); err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	for i := range n {
		g.servers = append(g.servers, newEtcd(t, "etcd"+strconv.Itoa(i), certs))
	}
	perMember := 2
	if o.network {
		g.network = newEtcdNetwork(t, g.servers)
		perMember = 3
	}
	withPorts(t, "etcd", perMember*n, func(ports []int) error {
		advertised := ports[n : 2*n]
		g.configure(ports[:n], ports[len(ports)-n:], advertised)
		if g.network != nil {
			if err := g.network.open(advertised); err != nil {
				return err
			}
		}
		return g.start()
	})
	if o.user != "" {
		g.enableAuth(o)
	}
	return g
}

// configure gives each server its ports, that for its peers and the one under which they know it, and sets
// the arguments.
func (g *EtcdGroup) configure(ports, peerPorts, advertised []int) {
	members := make([]string, len(g.servers))
	for i, s := range g.servers {
		s.port, s.peerPort = ports[i], peerPorts[i]
		members[i] = s.name + "=http://" + loopback(advertised[i])
	}
	for i, s := range g.servers {
		s.configure(advertised[i], strings.Join(members, ","), g.options)
	}
}

// start starts the cluster. After an error no server runs, and nothing is left of them.
func (g *EtcdGroup) start() error {
	err := startAll(g.servers)
	if err == nil {
		return nil
	}
	for _, s := range g.servers {
		s.kill()
		err = errors.Join(err, os.RemoveAll(s.dataDir()))
	}
	if g.network != nil {
		g.network.close()
	}
	return err
}

// enableAuth makes the users and roles. It speaks to the first server, and waits for the others.
func (g *EtcdGroup) enableAuth(o etcdOptions) {
	g.t.Helper()
	s := g.servers[0]
	type object = map[string]any
	for _, call := range []struct {
		path string
		body object
	}{
		{"auth/user/add", object{"name": "root", "password": o.password}},
		{"auth/role/add", object{"name": "root"}},
		{"auth/user/grant", object{"user": "root", "role": "root"}},
		{"auth/user/add", object{"name": o.user, "password": o.password}},
		{"auth/role/add", object{"name": "locker"}},
		{"auth/role/grant", object{"name": "locker", "perm": object{
			"permType": "READWRITE", "key": []byte("locker:"), "range_end": []byte("locker;"),
		}}},
		{"auth/user/grant", object{"user": o.user, "role": "locker"}},
		{"auth/enable", object{}},
	} {
		if err := s.call(call.path, call.body, nil); err != nil {
			g.t.Fatalf("testserver: etcd: %v", err)
		}
	}
	await(g.t, "all members of etcd ask for passwords", func() error {
		for _, s := range g.servers {
			err := s.call("kv/range", object{"key": []byte("locker:")}, nil)
			if err == nil || !strings.Contains(err.Error(), "user name is empty") {
				return fmt.Errorf("%s, asked without a password: %w", s.name, err)
			}
		}
		return nil
	})
}

// Servers returns the members in the order of their start.
func (g *EtcdGroup) Servers() []*EtcdServer { return slices.Clone(g.servers) }

// Addrs returns the addresses of the members for clients.
func (g *EtcdGroup) Addrs() []string { return addrs(g.servers) }

// URL returns "etcd://" with all members, or "etcds://…" with EtcdTLS.
func (g *EtcdGroup) URL() string {
	return scheme(g.servers[0].certs) + strings.Join(g.Addrs(), ",")
}

// Leader waits until all members that run, and were not stopped or isolated, agree on one of them, and returns that.
func (g *EtcdGroup) Leader() *EtcdServer {
	g.t.Helper()
	var leader *EtcdServer
	await(g.t, "etcd agrees on a leader", func() (err error) {
		leader, err = g.agreed()
		return err
	})
	return leader
}

func (g *EtcdGroup) agreed() (leader *EtcdServer, err error) {
	byID, leaders := map[string]*EtcdServer{}, map[string]bool{}
	for _, s := range g.servers {
		if !s.responsive() || s.isolated {
			continue
		}
		member, leader, err := s.status()
		if err != nil {
			return nil, err
		}
		byID[member], leaders[leader] = s, true
	}
	if len(leaders) != 1 {
		return nil, fmt.Errorf("%d leaders", len(leaders))
	}
	for id := range leaders {
		leader = byID[id]
	}
	if leader == nil {
		return nil, errors.New("the leader is none of those that answer")
	}
	return leader, nil
}

// Restart kills all members and starts them again, with the data that they have.
func (g *EtcdGroup) Restart() {
	g.t.Helper()
	for _, s := range g.servers {
		s.kill()
	}
	if err := startAll(g.servers); err != nil {
		g.t.Fatalf("testserver: etcd did not start again: %v", err)
	}
}
