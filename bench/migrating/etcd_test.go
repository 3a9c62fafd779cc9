package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/testserver"
)

func etcdWay(cli *clientv3.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		s, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
		if err != nil {
			return err
		}
		defer s.Close()
		m := concurrency.NewMutex(s, "/locks/orders/42")
		if err := m.Lock(ctx); err != nil {
			return err
		}
		defer m.Unlock(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func startEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{testserver.Etcd(t).Addr()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func TestEtcd_changeOver(t *testing.T) {
	cli := startEtcd(t)

	client, err := etcd.New(cli, locker.WithTTL(10*time.Second))
	changeOver(t, etcdWay(cli), made(t)(client, err))
}

func newSession(t *testing.T, cli *clientv3.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestEtcd_whatAMutexSays(t *testing.T) {
	ctx, cli := limited(t), startEtcd(t)
	m := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.ErrorIs(t, m.Unlock(ctx), concurrency.ErrLockReleased)
	require.NoError(t, m.Lock(ctx))
	other := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.ErrorIs(t, other.TryLock(ctx), concurrency.ErrLocked)
	owned, err := cli.Txn(ctx).If(m.IsOwner()).Commit()
	require.NoError(t, err)
	assert.True(t, owned.Succeeded)
	require.NoError(t, m.Unlock(ctx))
}

// A waiter's key is made before the holder's last write: its token says when it came, and a Header when it was granted.
func TestEtcd_revisionsOfTheTwoAreNotInOneOrder(t *testing.T) {
	ctx, cli := limited(t), startEtcd(t)
	client := made(t)(etcd.New(cli, locker.WithTTL(10*time.Second)))
	first, m := client.Mutex("orders/42"), client.Mutex("orders/42")
	require.NoError(t, first.Lock(ctx))
	queued := start(func() error { return m.Lock(ctx) })
	require.Eventually(t, func() bool {
		state, err := client.Inspect(ctx, "orders/42")
		return err == nil && len(state.Waiters) == 1
	}, 20*time.Second, 5*time.Millisecond)

	theirs := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.NoError(t, theirs.Lock(ctx))
	require.NoError(t, theirs.Unlock(ctx))
	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, <-queued)
	assert.Less(t, m.FencingToken(), uint64(theirs.Header().Revision), "the later holder's")
	require.NoError(t, m.Unlock(ctx))
}
