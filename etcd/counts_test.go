package etcd_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// counting is an etcd client that counts its requests and renewals.
func counting(t testing.TB, addr string) (cli *clientv3.Client, requests, renewals *atomic.Int64) {
	t.Helper()
	requests, renewals = new(atomic.Int64), new(atomic.Int64)
	return testwait.Closed(clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(
				ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				requests.Add(1)
				if txn, ok := req.(*etcdserverpb.TxnRequest); ok {
					for _, op := range slices.Concat(txn.Success, txn.Failure) {
						read := op.GetRequestRange()
						assert.False(t, read.GetKeysOnly() && len(read.GetRangeEnd()) > 0,
							"etcd 3.7 leaves out the leases, by which contenders are told from keys of others")
					}
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(
				ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				if !strings.HasSuffix(method, "/Watch") {
					renewals.Add(1)
				}
				return open(ctx, desc, cc, method, opts...)
			}),
		},
	}))(t), requests, renewals
}

func TestCounts(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	cli, requests, renewals := counting(t, s.Addr())
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
	assert.Zero(t, renewals.Load())

	require.NoError(t, m.Lock(t.Context()))
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	assert.EqualValues(t, 2, requests.Swap(0), "a TryLock in vain is one, and has nothing to clean up")
	require.NoError(t, m.Extend(t.Context()))
	assert.EqualValues(t, 1, requests.Swap(0), "an Extend looks at the key")
	assert.EqualValues(t, 1, renewals.Swap(0), "when it has renewed the session")

	next := c.Mutex("x")
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 && requests.Load() == 2 })
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	assert.LessOrEqual(t, requests.Swap(0), int64(4), "a waiter's take, its look when it watches, a release, a look, and not one more")
	require.NoError(t, next.Unlock(t.Context()))
}

func TestCounts_ofShares(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedEtcd(t).Addr()
	cli, requests, _ := counting(t, addr)
	c := clientOf(t, cli, locker.WithTTL(time.Hour), locker.WithoutRenewal())
	other := newClient(t, addr)
	first, second, others := c.RWMutex("x"), c.RWMutex("x"), other.RWMutex("x")
	require.NoError(t, others.RLock(t.Context()))
	require.NoError(t, first.RLock(t.Context()))
	assert.EqualValues(t, 3, requests.Swap(0), "the session, a place, and the token of another's share")
	for what, take := range map[string]func(context.Context) error{"RLock": second.RLock, "TryRLock": second.TryRLock} {
		require.NoError(t, take(t.Context()), what)
		assert.EqualValues(t, 1, requests.Swap(0), "%s knows of a share of its session", what)
		require.NoError(t, second.Unlock(t.Context()))
		assert.EqualValues(t, 1, requests.Swap(0))
	}
	require.NoError(t, others.Unlock(t.Context()))
	require.NoError(t, first.Unlock(t.Context()))
	requests.Store(0)
	require.NoError(t, first.RLock(t.Context()))
	assert.EqualValues(t, 1, requests.Load(), "where nobody is")
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, first.Lock(t.Context()))
	requests.Store(0)
	require.ErrorIs(t, second.TryRLock(t.Context()), locker.ErrHeld)
	assert.EqualValues(t, 1, requests.Swap(0), "a TryRLock in vain is one, and has nothing to clean up")
	require.NoError(t, first.Downgrade(t.Context()))
	assert.EqualValues(t, 1, requests.Swap(0))
	direct, writer := connect(t, addr), other.Mutex("x")
	waiting := async(func() error { return writer.Lock(t.Context()) })
	eventually(t, "a writer waits", func() bool { return len(queue(t, direct, "x")) == 2 })
	require.ErrorIs(t, second.TryRLock(t.Context()), locker.ErrHeld)
	assert.EqualValues(t, 1, requests.Swap(0), "nor where others share it")
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	require.NoError(t, writer.Unlock(t.Context()))
}

// Without settleTogether, each of the shares reads and writes when the writer has ended.
func TestCounts_ofSharesThatWait(t *testing.T) {
	t.Parallel()
	const shares = 30
	addr := testserver.SharedEtcd(t).Addr()
	cli, requests, _ := counting(t, addr)
	c, writer := clientOf(t, cli, locker.WithTTL(time.Hour), locker.WithoutRenewal()), newClient(t, addr).Mutex("x")
	require.NoError(t, writer.Lock(t.Context()))
	tokens := make(chan uint64, shares)
	for range shares {
		go func() {
			h, err := c.RWMutex("x").RAcquire(t.Context())
			assert.NoError(t, err)
			tokens <- h.Token()
		}()
	}
	direct := connect(t, addr)
	eventually(t, "they wait", func() bool { return len(queue(t, direct, "x")) == 1+shares })
	// Wait until no more requests come: then all share one watch.
	for sent := int64(0); sent != requests.Load(); time.Sleep(200 * time.Millisecond) {
		sent = requests.Load()
	}
	require.NoError(t, writer.Unlock(t.Context()))
	token := <-tokens
	for range shares - 1 {
		assert.Equal(t, token, <-tokens)
	}
	assert.LessOrEqual(t, requests.Load(), int64(1+2*shares+8), "the session; a place and a look each when the watch begins; what settles them together")
}

// A holder that asks whether somebody waits reads the queue once, and once more when one comes.
func TestCounts_ofWanted(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	cli, requests, _ := counting(t, s.Addr())
	m := clientOf(t, cli, locker.WithTTL(time.Hour), locker.WithoutRenewal()).Mutex("x")
	harness.Wanted(t, m, newClient(t, s.Addr()).Mutex("x"), func() int { return int(requests.Load()) })
}
