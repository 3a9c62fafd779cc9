package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

const (
	patient = time.Minute
	tick    = 2 * time.Millisecond
)

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	async       = testwait.Go
	withTimeout = testwait.Context
	space       = harness.Space
)

// connect makes an etcd client of an application's.
func connect(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return login(t, "", addrs...)
}

// login is connect, for a user whose password is that of all users.
func login(t testing.TB, user string, addrs ...string) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: addrs, Username: user, Logger: zap.NewNop()}
	if user != "" {
		config.Password = password
	}
	cli, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// in is options of a Client whose locks are in the test's space.
func in(t testing.TB, opts []locker.Option) []locker.Option {
	t.Helper()
	return append([]locker.Option{locker.WithPrefix(space(t))}, opts...)
}

// clientOf makes a Client over cli, in the test's space, and closes it before cli is closed.
func clientOf(t testing.TB, cli *clientv3.Client, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := etcd.New(cli, in(t, opts)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newClient makes a Client with connections of its own.
func newClient(t testing.TB, addr string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return clientOf(t, connect(t, addr), opts...)
}

// openURL opens a Client in the test's space, and closes it when the test ends.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(context.WithoutCancel(t.Context()), url, in(t, opts)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func driverOf(t testing.TB, cli *clientv3.Client) claims.Driver {
	t.Helper()
	d, err := etcd.NewDriver(cli)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(claims.Driver)
}

// folder is where the contenders for a Mutex's name stand, in the test's space.
func folder(t testing.TB, name string) string {
	t.Helper()
	return space(t) + ":" + name + "/"
}

// dead is where the marks of those stand who gave up while a take was in doubt.
func dead(t testing.TB, name string) string {
	t.Helper()
	return space(t) + ":" + name + "%/dead/"
}

// queue lists the keys of those who stand in the queue of a name, in order.
func queue(t testing.TB, cli *clientv3.Client, name string) []string {
	t.Helper()
	return keys(t, cli, folder(t, name))
}

func keys(t testing.TB, cli *clientv3.Client, prefix string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	resp, err := cli.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	var all []string
	for _, kv := range resp.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// leases are the sessions that the server knows.
func leases(t testing.TB, cli *clientv3.Client) []clientv3.LeaseID {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	resp, err := cli.Leases(ctx)
	require.NoError(t, err)
	var all []clientv3.LeaseID
	for _, l := range resp.Leases {
		all = append(all, l.ID)
	}
	return all
}

// leaseOf is the lease that a key is on.
func leaseOf(t testing.TB, cli *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	resp, err := cli.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	return clientv3.LeaseID(resp.Kvs[0].Lease)
}

// sessions is a server, for the tests that are those of another backend too.
func sessions(t testing.TB) harness.Sessions {
	t.Helper()
	addr, prefix := testserver.SharedEtcd(t).Addr(), space(t)
	direct := connect(t, addr)
	return harness.Sessions{
		Addr: addr, Prefix: prefix,
		Driver: func(t testing.TB, addr string) claims.Driver { return driverOf(t, connect(t, addr)) },
		Open: func(t testing.TB, ttl time.Duration, opts ...locker.Option) *locker.Client {
			return newClient(t, addr, append(opts, locker.WithPrefix(prefix), locker.WithTTL(ttl))...)
		},
		Queue:     func(t testing.TB, name string) []string { return keys(t, direct, prefix+":"+name+"/") },
		SessionOf: func(t testing.TB, key string) int64 { return int64(leaseOf(t, direct, key)) },
		End: func(t testing.TB, session int64) {
			_, err := direct.Revoke(t.Context(), clientv3.LeaseID(session))
			require.NoError(t, err)
		},
		Remove: func(t testing.TB, key string) {
			_, err := direct.Delete(t.Context(), key)
			require.NoError(t, err)
		},
		Put: func(t testing.TB, name, entry string) { // without a lease
			_, err := direct.Put(t.Context(), prefix+":"+name+"/"+entry, "not ours")
			require.NoError(t, err)
		},
	}
}

// faulty is a server, a proxy in front of it, and Clients on both sides of that.
type faulty struct {
	proxy  *testserver.Proxy
	direct *clientv3.Client // to the server itself
	client *locker.Client   // through the proxy, without renewal
	other  *locker.Client   // to the server itself
}

func newFaulty(t testing.TB, ttl time.Duration) *faulty {
	t.Helper()
	return newFaultyAt(t, testserver.SharedEtcd(t), ttl)
}

func newFaultyAt(t testing.TB, s *testserver.EtcdServer, ttl time.Duration) *faulty {
	t.Helper()
	f := &faulty{proxy: testserver.NewProxy(t, s.Addr()), direct: connect(t, s.Addr())}
	f.client = newClient(t, f.proxy.Addr(), locker.WithTTL(ttl), locker.WithoutRenewal())
	f.other = clientOf(t, f.direct, locker.WithTTL(ttl), locker.WithoutRenewal())
	warm := f.client.Mutex("warm") // there are a connection and a session
	require.NoError(t, warm.Lock(t.Context()))
	require.NoError(t, warm.Unlock(t.Context()))
	return f
}

// revisionNow counts the changes that the server has made.
func revisionNow(t testing.TB, cli *clientv3.Client) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	resp, err := cli.Get(ctx, "no such key")
	require.NoError(t, err)
	return resp.Header.Revision
}
