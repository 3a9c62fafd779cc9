package etcd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

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
