package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// locks counts the names of all tests in this package, which have one server in common.
var locks atomic.Int64

// fresh returns the qualified name of a lock that no other test has.
func fresh() string { return fmt.Sprint("fresh:x", locks.Add(1)) }

func driverAt(t *testing.T, s interface{ Addr() string }, opts ...grpc.DialOption) *backend {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), DialOptions: opts})
	require.NoError(t, err)
	d := newDriver(cli)
	d.owned = true
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// What a mark is for, step by step: the take reaches the server after its release.
func TestTakeAfterItsRelease(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := fresh()
	keys := func() int64 {
		resp, err := d.cli.Get(t.Context(), folderOf(name), clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for how, req := range map[string]driver.Request{
		"try": {}, "in the queue": {Wake: func() {}}, "try for a share": {Shared: true}, "for a share in the queue": {Shared: true, Wake: func() {}},
	} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			req.Name, req.TTL = name, time.Minute
			take := func(c *claim) {
				_, _ = c.entry.enqueue(ctx, req.Wake != nil)
				assert.Zero(t, keys(), "the mark forbids it")
			}
			c := d.Claim(req).(*claim)
			require.NoError(t, c.join(ctx))
			_, err := c.Ask(ended)
			require.ErrorIs(t, err, context.Canceled)
			c.entry.doubtful.Store(true) // as if the request were still on its way
			require.NoError(t, c.Release(t.Context()))
			take(c)

			c = d.Claim(req).(*claim)
			_, err = c.Ask(ctx)
			require.NoError(t, err)
			c.entry.doubtful.Store(true)
			require.NoError(t, c.Release(t.Context()), "the holder's own release in doubt")
			take(c)
		})
	}
}

// A try was told that the lock is held, and its release is not answered, and comes late. It is not
// granted the lock by a key that may go at any time.
func TestAsk_ofATryThatIsToLeave(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	for name, shared := range map[string]bool{"plain": false, "a share": true} {
		t.Run(name, func(t *testing.T) {
			c := d.Claim(driver.Request{Name: fresh(), TTL: time.Minute, Shared: shared}).(*claim)
			require.NoError(t, c.join(t.Context()))
			left := c.entry
			left.doubtful.Store(true)
			left.releases.Store(1) // as if that were still on its way
			_, err := c.Ask(t.Context())
			require.NoError(t, err)
			_, err = left.remove(t.Context(), 0, true)
			require.NoError(t, err)
			require.NoError(t, c.Extend(t.Context(), time.Minute))
			require.NoError(t, c.Release(t.Context()))
		})
	}
}

// An owner is used again, so that a folder does not fill with keys that were; one in doubt never
// is.
func TestOwner_isUsedAgainUnlessInDoubt(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: 10 * time.Second}
	take := func() *claim {
		l, err := claims.Take(t.Context(), d, req)
		require.NoError(t, err)
		return l.(*claim)
	}
	first := take()
	_, err := claims.Take(t.Context(), d, req)
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, first.Release(t.Context()))
	again := take()
	assert.Len(t, again.entry.session.owners, 1, "two contenders at once have made two owners")
	assert.Greater(t, again.Token(), first.Token())
	assert.Equal(t, []*entry{again.entry}, again.entry.session.Users())
	require.NoError(t, first.Release(t.Context()), "once more, by one whose owner is another's now")
	require.ErrorIs(t, first.Extend(t.Context(), req.TTL), locker.ErrLost)
	require.NoError(t, again.Extend(t.Context(), req.TTL), "untouched")
	again.entry.doubtful.Store(true)
	require.NoError(t, again.Release(t.Context()))
	for range 3 {
		next := take()
		assert.NotEqual(t, again.entry.owner, next.entry.owner)
		require.NoError(t, next.Release(t.Context()))
	}
}

// The marks of doubts go with their session, which is replaced when it has many.
func TestSession_ofManyDoubtsIsReplaced(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	first := acquire(t, d, time.Minute)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxTombstones {
		c := d.Claim(driver.Request{Name: fresh(), TTL: time.Minute}).(*claim)
		require.NoError(t, c.join(t.Context()))
		require.Same(t, first.entry.session, c.entry.session)
		for range 2 { // which is one mark
			_, err := c.Ask(ended)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, c.Release(t.Context()))
	}
	require.NotSame(t, first.entry.session, acquire(t, d, time.Minute).entry.session)
	require.NoError(t, first.Extend(t.Context(), time.Minute), "who uses it goes on to")
}

// stand puts a contender into the queue of a name.
func stand(t *testing.T, d *backend, name string) (c *claim, ahead string) {
	t.Helper()
	c = d.Claim(driver.Request{Name: name, TTL: time.Minute, Wake: func() {}}).(*claim)
	require.NoError(t, c.join(t.Context()))
	ahead, err := c.entry.enqueue(t.Context(), true)
	require.NoError(t, err)
	return c, ahead
}
