// Package servers runs servers for a program that measures, and tells what went on at them: it uses
// what starts them for the tests, in a test's place.
package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/test/testserver"
)

// Servers are one cluster, or some Redis servers that do not know of each other.
type Servers struct {
	Name  string         // with the version
	Addrs []string       // for clients
	Redis []*RedisServer // of Redis alone

	count func(ctx context.Context, into *look) error // what the servers tell of themselves; nil: nothing

	mu      sync.Mutex // guards what follows
	host    testserver.Host
	stopped bool
}

// Stop ends them for good.
func (s *Servers) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.host.Close()
	for _, r := range s.Redis {
		_ = r.Client.Close()
	}
}

// do does something to servers, or starts them, unless they have been stopped for good.
func (s *Servers) do(what func(testing.TB)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("the servers have been stopped")
	}
	return s.host.Do(what)
}

// start returns servers that the caller stops. They also stop when ctx ends, so that clients that
// do not heed it find out.
func start(ctx context.Context, with func(testing.TB, *Servers) error) (*Servers, error) {
	s := &Servers{}
	var err error
	if ended := s.do(func(t testing.TB) { err = with(t, s) }); ended != nil {
		err = ended
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	context.AfterFunc(ctx, s.Stop)
	return s, nil
}

// Redis starts n servers, each on a free loopback port.
func Redis(ctx context.Context, n int) (*Servers, error) {
	return start(ctx, func(t testing.TB, s *Servers) error {
		for range n {
			server := testserver.Redis(t)
			client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
			s.Addrs = append(s.Addrs, server.Addr())
			s.Redis = append(s.Redis, &RedisServer{Addr: server.Addr(), Client: client, server: server, all: s})
		}
		s.count = s.commands
		info, err := s.Redis[0].info(ctx, "server")
		s.Name = "Redis " + info["redis_version"]
		return err
	})
}

// Etcd starts n members of a cluster.
func Etcd(ctx context.Context, n int) (*Servers, error) {
	return start(ctx, func(t testing.TB, s *Servers) error {
		s.Addrs = testserver.EtcdCluster(t, n).Addrs()
		resp, err := http.Get("http://" + s.Addrs[0] + "/version")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		var version struct{ Etcdserver string }
		err = json.NewDecoder(resp.Body).Decode(&version)
		s.Name = "etcd " + version.Etcdserver
		return err
	})
}

// Tick is ZooKeeper's tickTime.
const Tick = 100 * time.Millisecond

// ZooKeeper starts n members of an ensemble. Addrs is of one alone, a follower where there are any:
// a client that knew of more would choose one at random, and some choices are faster.
func ZooKeeper(ctx context.Context, n int) (*Servers, error) {
	return start(ctx, func(t testing.TB, s *Servers) error {
		// Empty containers go after a minute, as is the default: tests are in a hurry.
		g := testserver.ZooKeeperEnsemble(t, n, testserver.ZooKeeperConfig(fmt.Sprint("tickTime=", Tick.Milliseconds())),
			testserver.ZooKeeperJVM("-Dznode.container.checkIntervalMs=60000"))
		one := g.Leader()
		if followers := g.Followers(); len(followers) > 0 {
			one = followers[0]
		}
		s.Addrs = []string{one.Addr()}
		answer, err := one.Ask("srvr")
		version, _, _ := strings.Cut(strings.TrimPrefix(answer, "Zookeeper version: "), "-")
		s.Name = "ZooKeeper " + version
		return err
	})
}

// Postgres starts one server, which writes to disk. Addrs is its URL.
func Postgres(ctx context.Context) (*Servers, error) {
	return start(ctx, func(t testing.TB, s *Servers) error {
		url := testserver.Postgres(t, testserver.PostgresOnDisk()).URL()
		s.Addrs = []string{url}
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		s.count = func(ctx context.Context, into *look) error { // but for this connection
			return conn.QueryRow(ctx, "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'").
				Scan(&into.connections)
		}
		version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
		s.Name = "PostgreSQL " + version
		return nil
	})
}
