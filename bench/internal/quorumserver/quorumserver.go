// Package quorumserver runs servers that agree among themselves, etcd and ZooKeeper, and PostgreSQL, for a program: it uses
// what starts them for the tests, in a test's place.
package quorumserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker/internal/test/testserver"
)

// Servers are one cluster.
type Servers struct {
	Name  string   // with the version
	Addrs []string // for clients
	Size  int

	host testserver.Host
}

// Stop ends them for good.
func (s *Servers) Stop() { s.host.Close() }

// Tick is ZooKeeper's tickTime.
const Tick = 100 * time.Millisecond

// Etcd starts n members of a cluster.
func Etcd(n int) (*Servers, error) {
	return start(n, func(t testing.TB, s *Servers) error {
		g := testserver.EtcdCluster(t, n)
		s.Addrs = g.Addrs()
		resp, err := http.Get("http://" + s.Addrs[0] + "/version")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		var version struct{ Etcdserver string }
		if err := json.NewDecoder(resp.Body).Decode(&version); err != nil {
			return err
		}
		s.Name = "etcd " + version.Etcdserver
		return nil
	})
}

// ZooKeeper starts n members of an ensemble. Addrs is of one alone, a follower where there are any: a client
// that knew of more would choose one at random, and some choices are faster.
func ZooKeeper(n int) (*Servers, error) {
	return start(n, func(t testing.TB, s *Servers) error {
		// Empty containers go after a minute, as is the default: tests are in a hurry.
		g := testserver.ZooKeeperEnsemble(t, n, testserver.ZooKeeperConfig(fmt.Sprint("tickTime=", Tick.Milliseconds())),
			testserver.ZooKeeperJVM("-Dznode.container.checkIntervalMs=60000"))
		one := g.Leader()
		if followers := g.Followers(); len(followers) > 0 {
			one = followers[0]
		}
		s.Addrs = []string{one.Addr()}
		answer, err := one.Ask("srvr")
		if err != nil {
			return err
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(answer, "Zookeeper version: "), "-")
		s.Name = "ZooKeeper " + version
		return nil
	})
}

// Postgres starts one server, which writes to disk.
func Postgres(settings ...string) (*Servers, error) {
	return start(1, func(t testing.TB, s *Servers) error {
		server := testserver.Postgres(t, testserver.PostgresOnDisk(), testserver.PostgresSettings(settings...))
		s.Addrs = []string{server.Addr()}
		s.Name = "PostgreSQL"
		return nil
	})
}

func start(n int, with func(testing.TB, *Servers) error) (*Servers, error) {
	s := &Servers{Size: n}
	var err error
	if ended := s.host.Do(func(t testing.TB) { err = with(t, s) }); ended != nil {
		err = ended
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}
