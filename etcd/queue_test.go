package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSession_revokedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderTheHolder(t)
}

func TestKey_removedUnderTheHolder(t *testing.T) {
	t.Parallel()
	sessions(t).RemovedUnderTheHolder(t)
}

func TestSession_revokedUnderAWaiter_takesItToTheEndOfTheQueue(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiter(t)
}

func TestSession_revokedUnderAWaiterWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	sessions(t).EndsUnderAWaiterWhoseTurnItIs(t)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	b.ExtendsAll(t, driverOf(t, connect(t, b.Addr)), space(t))
}

func TestMutexes_ofOneSessionContend(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	a, b, long := c.Mutex("x"), c.Mutex("x"), c.Mutex("x", locker.WithTTL(20*time.Second))
	require.NoError(t, a.Lock(t.Context()))
	require.ErrorIs(t, b.TryLock(t.Context()), locker.ErrHeld)
	require.ErrorIs(t, long.TryLock(t.Context()), locker.ErrHeld)
	require.Len(t, keys(t, direct, ""), 1, "TryLock has left nothing behind, be it a mark")
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, long.TryLock(t.Context()))
	assert.Greater(t, time.Until(long.Deadline()), 10*time.Second, "it has the lifetime of its own session")
	require.ErrorIs(t, a.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, long.Unlock(t.Context()))
	assert.Len(t, leases(t, direct), 2, "a session each for the two lifetimes")
}

func TestForeignKeys_doNoHarm(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	put := func(name, key string) {
		_, err := direct.Put(t.Context(), folder(t, name)+key, "not ours")
		require.NoError(t, err)
	}
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		put(name, "")
		put(name, "note")
		put(name, "0123456789abcdef0123456789abcdef") // without a lease
		m, next := c.Mutex(name), c.Mutex(name)
		require.NoError(t, take(m, withTimeout(t, patient)))
		put(name, "later")
		require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
		eventually(t, "of the TryLock nothing is left", func() bool { return len(queue(t, direct, name)) == 5 })
		waiting := async(func() error { return next.Lock(t.Context()) })
		eventually(t, "it waits", func() bool { return len(queue(t, direct, name)) == 6 })
		put(name, "at last")
		require.NoError(t, m.Extend(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, waiting))
		require.NoError(t, next.Unlock(t.Context()))
		assert.Len(t, queue(t, direct, name), 5, "theirs, untouched")
	}
}

// What has been compacted away can be watched no more, and has to be looked for.
func TestCompaction_whileWaiting(t *testing.T) {
	t.Parallel()
	f := newFaultyAt(t, testserver.Etcd(t), 10*time.Second)
	holder := f.other.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waiter := f.client.Mutex("x")
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, f.direct, "x")) == 2 })
	f.proxy.Sever()
	require.NoError(t, holder.Unlock(t.Context()))
	resp, err := f.direct.Put(t.Context(), "k", "v")
	require.NoError(t, err)
	_, err = f.direct.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	f.proxy.Restore()
	require.NoError(t, await(t, waiting))
	assert.NoError(t, waiter.Unlock(t.Context()))
}

func TestMetadata_isTheValue(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	direct := connect(t, s.Addr())
	m := newClient(t, s.Addr(), locker.WithMetadata("host 7")).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	resp, err := direct.Get(t.Context(), queue(t, direct, "x")[0])
	require.NoError(t, err)
	assert.Equal(t, "host 7", string(resp.Kvs[0].Value))
	assert.EqualValues(t, m.FencingToken(), resp.Kvs[0].CreateRevision)
}

// As etcd 3.7 answers: who asks for keys only is not told their leases.
func TestQueue_isSeenWhereKeysComeWithoutTheirLeases(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	keysOnly := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		txn, isTxn := req.(*etcdserverpb.TxnRequest)
		if err != nil || !isTxn {
			return err
		}
		resp := reply.(*etcdserverpb.TxnResponse)
		ops := txn.Failure
		if resp.Succeeded {
			ops = txn.Success
		}
		for i, op := range ops {
			if op.GetRequestRange().GetKeysOnly() {
				for _, kv := range resp.Responses[i].GetResponseRange().GetKvs() {
					kv.Lease = 0
				}
			}
		}
		return nil
	}
	client := func() *locker.Client {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: []string{s.Addr()}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(keysOnly)},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = cli.Close() })
		return clientOf(t, cli)
	}
	ctx := t.Context()
	a, b, c := client().Mutex("x"), client().Mutex("x"), client().Mutex("x")
	require.NoError(t, a.Lock(ctx))
	require.ErrorIs(t, b.TryLock(ctx), locker.ErrHeld)
	direct := connect(t, s.Addr())
	second := async(func() error { return b.Lock(ctx) })
	eventually(t, "B waits", func() bool { return len(queue(t, direct, "x")) == 2 })
	third := async(func() error { return c.Lock(ctx) })
	eventually(t, "C waits", func() bool { return len(queue(t, direct, "x")) == 3 })
	require.NoError(t, a.Unlock(ctx))
	require.NoError(t, await(t, second))
	assert.Never(t, func() bool { return c.FencingToken() > 0 }, 200*time.Millisecond, 5*time.Millisecond, "C waits for B")
	require.NoError(t, b.Unlock(ctx))
	require.NoError(t, await(t, third))
	require.NoError(t, c.Unlock(ctx))
}
