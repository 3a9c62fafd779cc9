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

const patient = time.Minute

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
	return testwait.Closed(clientv3.New(config))(t)
}

// addUser adds a user with rights to the keys that begin with prefix.
func addUser(t testing.TB, root *clientv3.Client, user, prefix string, rights clientv3.PermissionType) {
	t.Helper()
	ctx := t.Context()
	_, err := root.RoleAdd(ctx, user)
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), rights)
	require.NoError(t, err)
	_, err = root.UserAdd(ctx, user, password)
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, user, user)
	require.NoError(t, err)
}

// in is options of a Client whose locks are in the test's space.
func in(t testing.TB, opts []locker.Option) []locker.Option {
	t.Helper()
	return append([]locker.Option{locker.WithPrefix(space(t))}, opts...)
}

// clientOf makes a Client over cli, in the test's space, and closes it before cli is closed.
func clientOf(t testing.TB, cli *clientv3.Client, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(etcd.New(cli, in(t, opts)...))(t)
}

// newClient makes a Client with connections of its own.
func newClient(t testing.TB, addr string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return clientOf(t, connect(t, addr), opts...)
}

// openURL opens a Client in the test's space, and closes it when the test ends.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(context.WithoutCancel(t.Context()), url, in(t, opts)...))(t)
}

func driverOf(t testing.TB, cli *clientv3.Client) claims.Driver {
	t.Helper()
	return testwait.Closed(etcd.NewDriver(cli))(t).(claims.Driver)
}

// queue lists the keys of those who stand in the queue of a name, in order.
func queue(t testing.TB, cli *clientv3.Client, name string) []string {
	t.Helper()
	return keys(t, cli, space(t)+":"+name+"/")
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

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
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
		Queue: func(t testing.TB, name string) []string { return keys(t, direct, prefix+":"+name+"/") },
		SessionOf: func(t testing.TB, key string) int64 {
			resp, err := direct.Get(t.Context(), key)
			require.NoError(t, err)
			require.Len(t, resp.Kvs, 1)
			return resp.Kvs[0].Lease
		},
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
