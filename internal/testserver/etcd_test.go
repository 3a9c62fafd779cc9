package testserver

import (
	"crypto/tls"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

func putEtcd(t *testing.T, s *EtcdServer, key, value string) {
	t.Helper()
	if err := s.call("kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, nil); err != nil {
		t.Errorf("put %s: %v", key, err)
	}
}

func wantEtcd(t *testing.T, s *EtcdServer, key, want string) {
	t.Helper()
	var reply struct{ KVs []struct{ Value []byte } }
	if err := s.call("kv/range", map[string][]byte{"key": []byte(key)}, &reply); err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	got := ""
	for _, kv := range reply.KVs {
		got += string(kv.Value)
	}
	if got != want {
		t.Errorf("%s is %q, want %q", key, got, want)
	}
}

func TestEtcd_dataSurvivesAKillAndNotTheTest(t *testing.T) {
	var data string
	t.Run("server", func(t *testing.T) {
		s := Etcd(t)
		data = s.data
		addr := s.Addr()
		if want := "etcd://" + addr; s.URL() != want {
			t.Errorf("URL is %s, want %s", s.URL(), want)
		}
		putEtcd(t, s, "k", "v")
		s.Kill()
		if accepts(addr) {
			t.Error("the server still accepts connections after Kill")
		}
		s.Restart()
		if s.Addr() != addr {
			t.Errorf("address is %s after Restart, was %s", s.Addr(), addr)
		}
		wantEtcd(t, s, "k", "v")
		s.Terminate()
		s.Restart()
		wantEtcd(t, s, "k", "v")
	})
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after the test %s is still there: %v", data, err)
	}
}

func TestEtcd_stopIsSilentAndContinueRevives(t *testing.T) {
	s := Etcd(t)
	s.Stop()
	if err := s.healthy(); err == nil {
		t.Error("a stopped server answered")
	}
	if !accepts(s.Addr()) {
		t.Error("a stopped server's port must accept")
	}
	s.Continue()
	await(t, "the server answers again", s.healthy)
}

func TestEtcd_tls(t *testing.T) {
	s := Etcd(t, EtcdTLS())
	if want := "etcds://" + s.Addr(); s.URL() != want {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
	putEtcd(t, s, "k", "v")
	get := func(config *tls.Config) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Get(s.endpoint() + "/version")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := get(s.TLSConfig()); err != nil {
		t.Errorf("with the certificate of a client: %v", err)
	}
	anonymous := s.TLSConfig()
	anonymous.Certificates = nil
	if err := get(anonymous); err == nil {
		t.Error("a client without a certificate was accepted")
	}
	if plain := Etcd(t); plain.TLSConfig() != nil {
		t.Error("a server without TLS has a TLSConfig")
	}
}

func TestEtcd_authAsksForAPassword(t *testing.T) {
	s := Etcd(t, EtcdAuth("alice", "s3cret"))
	login := func(name, password string) error {
		return s.call("auth/authenticate", map[string]string{"name": name, "password": password}, nil)
	}
	for _, name := range []string{"alice", "root"} {
		if err := login(name, "s3cret"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := login(name, "wrong"); err == nil {
			t.Errorf("%s: a wrong password was accepted", name)
		}
	}
	if err := s.call("kv/range", map[string][]byte{"key": []byte("locker:x")}, nil); err == nil || !strings.Contains(err.Error(), "user name is empty") {
		t.Errorf("without a password: %v", err)
	}
}

func TestEtcdCluster_electsAnotherLeader(t *testing.T) {
	g := EtcdCluster(t, 3)
	if want := "etcd://" + strings.Join(g.Addrs(), ","); g.URL() != want {
		t.Errorf("URL is %s, want %s", g.URL(), want)
	}
	first := g.Leader()
	putEtcd(t, first, "k", "v")
	first.Stop()
	second := g.Leader()
	if second == first {
		t.Error("a stopped server is still the leader")
	}
	wantEtcd(t, second, "k", "v")
	first.Continue()
	await(t, "the old leader follows", first.healthy)
	if leader := g.Leader(); !slices.Contains(g.Servers(), leader) {
		t.Errorf("the leader is %v, none of the members", leader)
	}
	g.Leader().Kill()
	g.Leader()
	g.Restart()
	wantEtcd(t, g.Leader(), "k", "v")
}

func TestEtcdCluster_withoutAMajorityNobodyIsHealthy(t *testing.T) {
	g := EtcdCluster(t, 3)
	a, b, c := g.servers[0], g.servers[1], g.servers[2]
	a.Kill()
	b.Kill()
	await(t, "the third member says that it is alone", func() error {
		if c.healthy() == nil {
			return os.ErrExist
		}
		return nil
	})
	a.Restart()
	b.Restart()
	await(t, "the third member is back", c.healthy)
}

func TestEtcdCluster_isolatedMembersHearNothingAndHealCatchesUp(t *testing.T) {
	g := EtcdCluster(t, 3, EtcdPartitionable())
	for _, which := range []string{"the leader", "a follower"} {
		t.Run(which, func(t *testing.T) {
			alone := g.Leader()
			if which == "a follower" {
				alone = g.servers[(slices.Index(g.servers, alone)+1)%3]
			}
			putEtcd(t, alone, which, "old")
			g.Isolate(alone)
			leader := g.Leader()
			if leader == alone {
				t.Fatal("a member on its own leads the others")
			}
			putEtcd(t, leader, which, "new")
			await(t, "the isolated member notices", func() error {
				if alone.healthy() == nil {
					return os.ErrExist
				}
				return nil
			})
			var reply struct{ KVs []struct{ Value []byte } }
			err := alone.call("kv/range", map[string]any{"key": []byte(which), "serializable": true}, &reply)
			if err != nil || len(reply.KVs) != 1 || string(reply.KVs[0].Value) != "old" {
				t.Errorf("the isolated member has %v, %v", reply, err)
			}
			g.Heal()
			await(t, "it is back", alone.healthy)
			wantEtcd(t, alone, which, "new")
		})
	}
}

func TestEtcdCluster_membersComeAndGo(t *testing.T) {
	g := EtcdCluster(t, 3, EtcdArgs("--strict-reconfig-check=false"))
	putEtcd(t, g.servers[0], "k", "v")
	for range 2 {
		wantEtcd(t, g.Add(), "k", "v")
		gone := g.Leader()
		g.Remove(gone)
		if gone.running() || slices.Contains(g.Servers(), gone) {
			t.Errorf("%s is still there", gone.name)
		}
		wantEtcd(t, g.Leader(), "k", "v")
	}
}

func TestEtcd_restoreBringsBackTheOldData(t *testing.T) {
	s := Etcd(t)
	putEtcd(t, s, "k", "old")
	restore := s.Backup()
	putEtcd(t, s, "k", "new")
	restore()
	wantEtcd(t, s, "k", "old")
}

func TestEtcd_wipeLeavesNothing(t *testing.T) {
	g := EtcdCluster(t, 3)
	type object = map[string]any
	if err := g.Servers()[0].call("kv/put", object{"key": []byte("k")}, nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range g.Servers() {
		s.Kill()
	}
	for _, s := range g.Servers() {
		s.Wipe()
	}
	g.Restart()
	var reply struct{ Count string }
	if err := g.Servers()[0].call("kv/range", object{"key": []byte("k")}, &reply); err != nil || reply.Count != "" {
		t.Errorf("keys there are: %q, %v", reply.Count, err)
	}
}
