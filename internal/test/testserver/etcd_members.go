package testserver

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Add starts one more member, which has all data when Add returns. Without
// EtcdArgs("--strict-reconfig-check=false") a cluster takes no new member in its first five seconds.
func (g *EtcdGroup) Add() *EtcdServer {
	g.t.Helper()
	if g.network != nil {
		g.t.Fatal("testserver: a cluster with EtcdPartitionable does not grow")
	}
	g.added++
	s := newEtcd(g.t, "added"+strconv.Itoa(g.added), g.servers[0].certs)
	s.port, s.peerPort = reservePort(g.t), reservePort(g.t)
	members := []string{s.name + "=http://" + loopback(s.peerPort)}
	for _, member := range g.servers {
		members = append(members, member.name+"=http://"+loopback(member.peerPort))
	}
	options := g.options
	options.args = append(slices.Clip(options.args), "--initial-cluster-state=existing")
	s.configure(s.peerPort, strings.Join(members, ","), options)
	leader := g.Leader()
	if err := leader.call("cluster/member/add", map[string][]string{"peerURLs": {"http://" + loopback(s.peerPort)}}, nil); err != nil {
		g.t.Fatalf("testserver: etcd: %v", err)
	}
	if err := s.serve(); err != nil {
		g.t.Fatalf("testserver: %s did not join: %v", s.name, err)
	}
	g.servers = append(g.servers, s)
	return s
}

// Remove takes a member out of the cluster, which ends it.
func (g *EtcdGroup) Remove(s *EtcdServer) {
	g.t.Helper()
	id, _, err := s.status()
	if err != nil {
		g.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	g.servers = slices.DeleteFunc(g.servers, func(member *EtcdServer) bool { return member == s })
	if err := g.servers[0].call("cluster/member/remove", map[string]string{"ID": id}, nil); err != nil {
		g.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	select {
	case <-s.exited:
	case <-time.After(goneTimeout):
		g.t.Fatalf("testserver: %s still runs %v after it was removed\n%s", s.name, goneTimeout, s.tail())
	}
}

// Backup returns a function that puts back the data of now, as after a disaster. The server is
// stopped and started again by both.
func (s *EtcdServer) Backup() (restore func()) {
	s.t.Helper()
	backup := MemoryDir(s.t)
	s.Terminate()
	if err := os.CopyFS(backup, os.DirFS(s.dataDir())); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
	s.Restart()
	return func() {
		s.t.Helper()
		s.Kill()
		if err := os.RemoveAll(s.dataDir()); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		if err := os.CopyFS(s.dataDir(), os.DirFS(backup)); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		s.Restart()
	}
}
