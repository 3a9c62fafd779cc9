package thirdparty

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestConcurrencyMutex(t *testing.T) {
	server := testserver.Etcd(t)
	run(t, conformance.Harness{
		TTL: time.Second,
		Client: func(t conformance.TB, ttl time.Duration, _ bool) func(string) locker.Locker {
			s := openSession(t, dialEtcd(t, server.Addr()), ttl)
			return func(name string) locker.Locker { return newEtcdMutex(s, name) }
		},
	}, func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newEtcdSessions(dialEtcd(t, via(server.Addr())), name, ttl)
	}, server)
}

func TestZkLock(t *testing.T) {
	server := testserver.ZooKeeper(t)
	run(t, conformance.Harness{
		TTL: 900 * time.Millisecond,
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			conn := dialZooKeeper(t, server.Addr(), ttl)
			return func(name string) locker.Locker { return newZkLock(conn, name, ttl, renew) }
		},
	}, func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return newZkLock(dialZooKeeper(t, via(server.Addr()), ttl), name, ttl, false)
	}, server)
}

// user is a test or a trial of the suite.
type user interface {
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

func dialEtcd(t user, addr string) *clientv3.Client {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func openSession(t user, cli *clientv3.Client, ttl time.Duration) *concurrency.Session {
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		t.Fatalf("session: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func dialZooKeeper(t user, addr string, session time.Duration) *zk.Conn {
	conn, _, err := zk.Connect([]string{addr}, session, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}
