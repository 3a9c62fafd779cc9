package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// counting is an etcd client that counts its requests, and streams that it opens.
func counting(t testing.TB, addr string) (cli *clientv3.Client, requests, streams *atomic.Int64) {
	t.Helper()
	requests, streams = new(atomic.Int64), new(atomic.Int64)
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(
				ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				requests.Add(1)
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(
				ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				streams.Add(1)
				return open(ctx, desc, cc, method, opts...)
			}),
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli, requests, streams
}

func TestCounts(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	cli, requests, streams := counting(t, s.Addr())
	direct := connect(t, s.Addr())
	c := clientOf(t, cli, locker.WithTTL(time.Hour), locker.WithoutRenewal())
	m := c.Mutex("x")
	pair := func() {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	pair()
	assert.EqualValues(t, 3, requests.Swap(0), "the session, and a pair")
	for range 10 {
		pair()
	}
	assert.EqualValues(t, 20, requests.Swap(0), "a request to take, and one to give back")
	assert.Zero(t, streams.Load())

	require.NoError(t, m.Lock(t.Context()))
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	assert.EqualValues(t, 2, requests.Swap(0), "a TryLock in vain is one, and has nothing to clean up")
	require.NoError(t, m.Extend(t.Context()))
	assert.EqualValues(t, 1, requests.Swap(0), "an Extend looks at the key")
	assert.EqualValues(t, 1, streams.Swap(0), "when it has renewed the session")

	next := c.Mutex("x")
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 && streams.Load() == 1 })
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.LessOrEqual(t, requests.Swap(0), int64(4), "a waiter's take, its look when it watches, a release, a look, and not one more")
	require.NoError(t, next.Unlock(t.Context()))
}

func TestCounts_ofShares(t *testing.T) {
	t.Parallel()
	cli, requests, _ := counting(t, testserver.Etcd(t).Addr()) // on a server of others hints grow old
	c := clientOf(t, cli, locker.WithTTL(time.Hour), locker.WithoutRenewal())
	first, second := c.RWMutex("x"), c.RWMutex("x")
	require.NoError(t, first.RLock(t.Context()))
	assert.EqualValues(t, 2, requests.Swap(0), "the session, and a share where nobody is")
	for what, take := range map[string]func(context.Context) error{"RLock": second.RLock, "TryRLock": second.TryRLock} {
		require.NoError(t, take(t.Context()), what)
		assert.EqualValues(t, 2, requests.Swap(0), "%s takes a place, and settles the token", what)
		require.NoError(t, second.Unlock(t.Context()))
		assert.EqualValues(t, 1, requests.Swap(0))
	}
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, first.Lock(t.Context()))
	requests.Store(0)
	require.ErrorIs(t, second.TryRLock(t.Context()), locker.ErrHeld)
	assert.EqualValues(t, 1, requests.Swap(0), "a TryRLock in vain is one, and has nothing to clean up")
	require.NoError(t, first.Downgrade(t.Context()))
	assert.EqualValues(t, 1, requests.Swap(0))
	require.NoError(t, first.Unlock(t.Context()))
}

// reads counts what requests read: single keys, and folders, of which the server reads all keys, however few it is asked for.
type reads struct{ keys, folders atomic.Int64 }

func (r *reads) count(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok && err == nil {
		done := txn.Failure
		if reply.(*etcdserverpb.TxnResponse).Succeeded {
			done = txn.Success
		}
		for _, op := range done {
			switch read := op.GetRequestRange(); {
			case read == nil:
			case len(read.RangeEnd) == 0:
				r.keys.Add(1)
			default:
				r.folders.Add(1)
			}
		}
	}
	return err
}

// Each of those who wait looks now and then, and again when it has begun to watch, and what that costs does not depend on
// how many they are.
func TestCounts_ofWaiters(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	var r reads
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.count)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	c := clientOf(t, cli, locker.WithTTL(2*time.Second))
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	const n = 10
	done := make([]<-chan error, n)
	for i := range done {
		done[i] = async(func() error {
			m := c.Mutex("x")
			if err := m.Lock(t.Context()); err != nil {
				return err
			}
			return m.Unlock(t.Context())
		})
	}
	// A read is counted when it is answered.
	eventually(t, "they wait", func() bool { return len(queue(t, direct, "x")) == n+1 && r.folders.Load() >= n+1 })
	assert.EqualValues(t, n+1, r.folders.Load(), "each reads the folder when it comes")
	r.folders.Store(0)
	before := r.keys.Load()
	eventually(t, "each has looked several times", func() bool { return r.keys.Load()-before > 8*n || r.folders.Load() > 4*n })
	assert.Zero(t, r.folders.Load(), "they read folders")
	require.NoError(t, m.Unlock(t.Context()))
	for _, d := range done {
		require.NoError(t, await(t, d))
	}
}

// An uncontended Lock and Unlock, beside the two bare requests, and the recipe of etcd's own.
func BenchmarkPair(b *testing.B) {
	s := testserver.SharedEtcd(b)
	cli := connect(b, s.Addr())
	ctx := b.Context()
	session, err := concurrency.NewSession(cli, concurrency.WithTTL(60))
	require.NoError(b, err)
	defer func() { _ = session.Close() }()
	recipe := concurrency.NewMutex(session, "recipe")
	m := clientOf(b, cli, locker.WithTTL(time.Minute)).Mutex("x")
	both := func(first, second func() error) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if err := first(); err != nil {
					b.Fatal(err)
				}
				if err := second(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	bare := func(op clientv3.Op) func() error {
		return func() error {
			_, err := cli.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("bare/none"), "=", 0)).Then(op).Commit()
			return err
		}
	}
	b.Run("bare", both(bare(clientv3.OpPut("bare/x", "", clientv3.WithLease(session.Lease()))), bare(clientv3.OpDelete("bare/x"))))
	b.Run("locker", both(func() error { return m.Lock(ctx) }, func() error { return m.Unlock(ctx) }))
	b.Run("concurrency", both(func() error { return recipe.Lock(ctx) }, func() error { return recipe.Unlock(ctx) }))
}
