package testserver

import (
	"testing"
	"time"
)

func TestZooKeeperEnsemble_whoIsIsolatedServesNobodyUntilHealed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		isolate func(*ZooKeeperGroup, *ZooKeeperServer)
	}{
		{"silently", (*ZooKeeperGroup).Isolate},
		{"loudly", (*ZooKeeperGroup).Disconnect},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := ZooKeeperEnsemble(t, 3, ZooKeeperPartitionable())
			for _, s := range []*ZooKeeperServer{g.Leader(), g.Followers()[0]} {
				tt.isolate(g, s)
				awaitRole(t, s, "")
				if !accepts(s.Addr()) {
					t.Errorf("clients do not reach %s", s.name)
				}
				leader := g.Leader()
				if leader == s {
					t.Errorf("%s is isolated and leads", s.name)
				}
				path := "/without-" + s.name
				createNode(t, zooKeeperClient(t, leader.Addr()), path, "v")
				if role := s.Role(); role != "" {
					t.Errorf("%s is isolated and %s", s.name, role)
				}

				g.Heal()
				awaitRole(t, s, "follower")
				wantNode(t, zooKeeperClient(t, s.Addr()), path, "v")
			}
		})
	}
}

func TestZooKeeperEnsemble_partitionsOutliveARestart(t *testing.T) {
	g := ZooKeeperEnsemble(t, 3, ZooKeeperPartitionable())
	lowest, highest := g.servers[0], g.servers[2]
	for _, s := range []*ZooKeeperServer{lowest, highest} {
		g.Disconnect(s)
		g.Leader()
		s.Kill()
		if err := s.start(func() error {
			_, err := s.Ask("ruok")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// Much longer than a member needs to join.
		time.Sleep(time.Second)
		if role := s.Role(); role != "" {
			t.Errorf("%s is isolated and %s", s.name, role)
		}
		g.Heal()
		awaitRole(t, s, "follower")
	}
}
