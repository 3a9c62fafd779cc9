package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
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

// nameOf returns the name of a lease's lock.
func nameOf(t *testing.T, c *claim) string {
	t.Helper()
	prefix, escaped, _ := strings.Cut(strings.TrimSuffix(c.entry.folder, "/"), ":")
	name, ok := sessions.Unescape(escaped, escape)
	require.True(t, ok)
	return prefix + ":" + name
}

// force ends a hold as an operator does, from another process.
func force(t *testing.T, c *claim) {
	t.Helper()
	operator := driverAt(t, testserver.SharedEtcd(t))
	shown, err := operator.Inspect(t.Context(), nameOf(t, c))
	require.NoError(t, err)
	require.NoError(t, operator.ForceRelease(t.Context(), nameOf(t, c), shown))
	require.ErrorIs(t, operator.ForceRelease(t.Context(), nameOf(t, c), shown), driver.ErrNotHeld)
}

// An Unlock was sent, and lost on its way; then the hold was ended. Sent again, it does not take
// that for its own doing.
func TestForceRelease_beforeAReleaseThatIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*entry){
		"sent once":              func(*entry) {},
		"sent twice":             func(e *entry) { e.releases.Store(1) },
		"sent twice, and doubts": func(e *entry) { e.releases.Store(1); e.doubtful.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := driverAt(t, testserver.SharedEtcd(t))
			c := acquire(t, d, time.Minute)
			e := c.entry
			before(e)
			force(t, c)
			if e.releases.Load() > 0 { // the first has arrived after that, and its reply was lost
				_, err := e.remove(t.Context(), e.created.Load(), e.doubtful.Load())
				require.NoError(t, err)
			}
			require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
			require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
			assert.Equal(t, 1, e.session.tombstones, "the mark counts")
			assert.Empty(t, e.session.owners, "an owner with a mark takes nothing more")
			next, err := claims.Take(t.Context(), d, driver.Request{Name: nameOf(t, c), TTL: time.Minute})
			require.NoError(t, err)
			assert.Greater(t, next.Token(), c.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A request that puts the key, and was given up, arrives after the hold was ended.
func TestForceRelease_beforeATakeThatArrivesLate(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	c := acquire(t, d, time.Minute)
	force(t, c)
	_, err := d.cli.Txn(t.Context()).If(c.entry.alive(), c.entry.absent()).Then(c.entry.put("")).Commit()
	require.NoError(t, err)
	state, err := d.Inspect(t.Context(), nameOf(t, c))
	require.NoError(t, err)
	assert.Equal(t, driver.State{}, state, "it has put nothing")
	require.ErrorIs(t, c.Extend(t.Context(), time.Minute), driver.ErrLost)
	require.NoError(t, d.Close())
	left, err := driverAt(t, testserver.SharedEtcd(t)).cli.Get(t.Context(), strings.TrimSuffix(c.entry.folder, "/"), clientv3.WithPrefix())
	require.NoError(t, err)
	assert.Empty(t, left.Kvs, "with the session goes the mark")
}

func acquire(t *testing.T, d *backend, ttl time.Duration) *claim {
	t.Helper()
	l, err := claims.Take(t.Context(), d, driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	return l.(*claim)
}

// An owner is for one contender after the other: the key ahead may be gone, and have come back
// behind ours.
func TestLook_seesThatTheKeyAheadIsAnothers(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := fresh()
	come := func() (c *claim, ahead string) { return stand(t, d, name) }
	a, _ := come()
	b, ahead := come()
	require.Equal(t, a.entry.key, ahead)
	b.entry.ahead = a.entry.key
	next, err := b.entry.readPredecessor(t.Context())
	require.NoError(t, err)
	assert.Equal(t, a.entry.key, next)
	require.NoError(t, a.Release(t.Context()))
	again, ahead := come()
	require.Equal(t, a.entry.key, again.entry.key)
	require.Equal(t, b.entry.key, ahead)
	next, err = b.entry.readPredecessor(t.Context())
	require.NoError(t, err)
	assert.Empty(t, next, "nobody is ahead")
	_, err = d.cli.Delete(t.Context(), b.entry.key)
	require.NoError(t, err)
	_, err = b.entry.readPredecessor(t.Context())
	require.ErrorIs(t, err, errRemoved)
	require.NoError(t, again.Release(t.Context()))
}

// Somebody has removed our key, and put another in its place.
func TestExtend_looksForTheVeryKey(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	l := acquire(t, d, time.Minute)
	_, err := d.cli.Delete(t.Context(), l.entry.key)
	require.NoError(t, err)
	_, err = d.cli.Put(t.Context(), l.entry.key, "", clientv3.WithLease(l.entry.session.id))
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
	l = acquire(t, d, time.Minute)
	_, err = d.cli.Revoke(t.Context(), l.entry.session.id)
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
}

// The session was not renewed in time, as after a pause of the server: who is granted the lock by
// then has most of a TTL all the same.
func TestAsk_renewsASessionThatHasLittleLeft(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	first := acquire(t, d, time.Minute)
	s := first.entry.session
	leave := func(left time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.until, s.due = clock.Now().Add(left), clock.Now().Add(time.Hour)
	}
	leave(30 * time.Second)
	second := acquire(t, d, time.Minute)
	assert.Same(t, s, second.entry.session)
	assert.Greater(t, second.Validity(), 45*time.Second)
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, second.Release(t.Context()))
	leave(0)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	third, err := claims.Take(ctx, d, driver.Request{Name: fresh(), TTL: time.Minute})
	require.NoError(t, err)
	assert.NotSame(t, s, third.(*claim).entry.session, "it may have ended")
}

// Renewals fail: they are made again, each after a pause, until the session is over.
func TestSession_thatCannotBeRenewedEnds(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"refused": codes.PermissionDenied, "unreachable": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var failed atomic.Int64
			d := driverAt(t, testserver.SharedEtcd(t), grpc.WithChainStreamInterceptor(func(
				context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				failed.Add(1)
				return nil, status.Error(code, "no")
			}))
			l := acquire(t, d, 4*time.Second)
			<-l.entry.session.Context().Done()
			assert.Positive(t, failed.Load())
			assert.Less(t, failed.Load(), int64(200), "without a pause there are thousands")
		})
	}
}
