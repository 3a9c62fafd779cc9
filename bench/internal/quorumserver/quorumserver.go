// Package quorumserver runs servers that agree among themselves, etcd and ZooKeeper, and PostgreSQL, for a program: it uses
// what starts them for the tests, in a test's place.
package quorumserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
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

	host *host
}

// Stop ends them for good.
func (s *Servers) Stop() { s.host.stop() }

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

func start(n int, with func(testing.TB, *Servers) error) (s *Servers, err error) {
	s = &Servers{Size: n, host: &host{}}
	defer func() {
		if failed := recover(); failed != nil {
			failure, ours := failed.(failure)
			if !ours {
				panic(failed)
			}
			err = failure
		}
		if err != nil {
			s.Stop()
		}
	}()
	err = with(s.host, s)
	return s, err
}

// host stands in for a test. The interface that it embeds is nil: it has the methods that testserver calls.
type host struct {
	testing.TB
	cleanUps []func()
}

// failure is what ended the test.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

// Helper implements testing.TB.
func (h *host) Helper() {}

// Cleanup implements testing.TB.
func (h *host) Cleanup(f func()) { h.cleanUps = append(h.cleanUps, f) }

// TempDir implements testing.TB.
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Errorf implements testing.TB. What could not be cleaned up changes no figure.
func (h *host) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatalf implements testing.TB.
func (h *host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// Skipf implements testing.TB.
func (h *host) Skipf(format string, args ...any) { h.Fatalf(format, args...) }

func (h *host) stop() {
	for _, f := range slices.Backward(h.cleanUps) {
		f()
	}
	h.cleanUps = nil
}
