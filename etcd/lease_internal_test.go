package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

func acquire(t *testing.T, d *Driver, ttl time.Duration) *lease {
	t.Helper()
	l, err := d.Acquire(t.Context(), driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	return l.(*lease)
}

func driverBehindAProxy(t *testing.T) (*Driver, *testserver.Proxy) {
	t.Helper()
	proxy := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{proxy.Addr()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	d, err := NewDriver(cli)
	require.NoError(t, err)
	d.owned = true
	t.Cleanup(func() { _ = d.Close() })
	return d, proxy
}

// The life of a session counts from when the renewal was sent, however late the answer comes, and in whichever order.
func TestSession_lastsFromWhenItsRenewalWasSent(t *testing.T) {
	t.Parallel()
	const late = 500 * time.Millisecond
	d, proxy := driverBehindAProxy(t)
	s := acquire(t, d, time.Minute).session
	proxy.HoldReplies(true)
	renewed := make(chan error)
	go func() { renewed <- s.renew(t.Context()) }()
	for {
		if _, replies := proxy.Held(); replies > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(late)
	proxy.ReleaseReplies()
	require.NoError(t, <-renewed)
	assert.LessOrEqual(t, s.Left(), s.TTL-late)
	before := s.until
	require.True(t, s.confirm(before.Add(-s.TTL-time.Second)), "an older one")
	assert.Equal(t, before, s.until)
}

// The session ended at the server, and the holder is the first to hear.
func TestExtend_onASessionThatEndedIsALoss(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	l := acquire(t, d, time.Minute)
	told := make(chan struct{})
	l.NotifyLost(func() { close(told) })
	_, err := d.cli.Revoke(t.Context(), l.session.id)
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	<-told
	assert.Zero(t, l.Validity())
	again := make(chan struct{})
	l.NotifyLost(func() { close(again) })
	<-again // at once: it has ended already
}

// Little is left of the session when the lock is taken: it is renewed first.
func TestAcquire_renewsASessionOfWhichLittleIsLeft(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	const ttl = time.Minute
	require.NoError(t, acquire(t, d, ttl).Release(t.Context()))
	for name, take := range map[string]func() (driver.Lease, error){
		"Acquire": func() (driver.Lease, error) {
			return d.Acquire(t.Context(), driver.Request{Name: fresh(), TTL: ttl})
		},
		"AcquireQueued": func() (driver.Lease, error) {
			return d.AcquireQueued(t.Context(), driver.Request{Name: fresh(), TTL: ttl}, func(error) {})
		},
	} {
		s, ok := d.sessions.Find(ttl)
		require.True(t, ok)
		s.mu.Lock()
		s.until = s.until.Add(-ttl / 2)
		s.mu.Unlock()
		l, err := take()
		require.NoError(t, err)
		assert.Greater(t, l.Validity(), ttl*3/4, name)
		require.NoError(t, l.Release(t.Context()))
	}
}

// An owner is for one contender after the other: the key ahead may be gone, and have come back behind ours.
func TestLook_seesThatTheKeyAheadIsAnothers(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: time.Minute}
	o := d.newOutage(req.TTL, unheard)
	come := func() (l *lease, ahead string) { return stand(t, d, req.Name, o) }
	a, _ := come()
	b, ahead := come()
	require.Equal(t, a.key, ahead)
	next, err := b.look(t.Context(), o, a.key)
	require.NoError(t, err)
	assert.Equal(t, a.key, next)
	require.NoError(t, a.Release(t.Context()))
	again, ahead := come()
	require.Equal(t, a.key, again.key)
	require.Equal(t, b.key, ahead)
	next, err = b.look(t.Context(), o, a.key)
	require.NoError(t, err)
	assert.Empty(t, next, "nobody is ahead")
	_, err = d.cli.Delete(t.Context(), b.key)
	require.NoError(t, err)
	_, err = b.look(t.Context(), o, a.key)
	require.ErrorIs(t, err, errRemoved)
	require.NoError(t, again.Release(t.Context()))
}

// The key ahead has lost its lease, as one that somebody has written over by hand: its owner is no contender any more, and
// the one before it is.
func TestLook_passesOverAKeyAheadThatIsNoContendersAnyMore(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := fresh()
	o := d.newOutage(time.Minute, unheard)
	first, _ := stand(t, d, name, o)
	second, _ := stand(t, d, name, o)
	third, ahead := stand(t, d, name, o)
	require.Equal(t, second.key, ahead)
	_, err := d.cli.Put(t.Context(), second.key, "by hand")
	require.NoError(t, err)
	next, err := third.look(t.Context(), o, ahead)
	require.NoError(t, err)
	assert.Equal(t, first.key, next)
	require.NoError(t, first.Release(t.Context()))
	next, err = third.look(t.Context(), o, first.key)
	require.NoError(t, err)
	assert.Empty(t, next)
}

// failing is a transaction that fails, and soon has its caller give up.
type failing struct {
	clientv3.Txn
	err    error
	giveUp func()
}

func (f failing) Commit() (*clientv3.TxnResponse, error) {
	time.AfterFunc(time.Millisecond, f.giveUp)
	return nil, f.err
}

// A take that the server has refused leaves no doubt; any other that failed does, and is counted.
func TestTake_isInDoubtUnlessRefused(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	for failure, doubts := range map[error]int{rpctypes.ErrPermissionDenied: 0, rpctypes.ErrTooManyRequests: 1, errors.New("else"): 1} {
		o := d.newOutage(time.Minute, unheard)
		l, err := d.contend(t.Context(), driver.Request{Name: fresh(), TTL: o.TTL}, o)
		require.NoError(t, err)
		before := l.session.doubts
		ctx, cancel := context.WithCancel(t.Context())
		_, err = l.take(ctx, o, func(clientv3.Txn) clientv3.Txn { return failing{err: failure, giveUp: cancel} })
		require.Error(t, err)
		cancel()
		assert.Equal(t, doubts > 0, l.doubtful, "%v", failure)
		assert.Equal(t, doubts, l.session.doubts-before, "%v", failure)
		_ = l.finish(driver.ErrLost)
	}
}

// A lease uses its session until it is released, and one that was refused does not.
func TestSession_knowsItsUsers(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: time.Minute}
	held, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	l := held.(*lease)
	_, err = d.Acquire(t.Context(), req)
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Equal(t, []*lease{l}, l.session.Users())
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, l.Release(t.Context()))
	assert.Empty(t, l.session.Users())
}

// Somebody has removed our key, and put another in its place.
func TestExtend_looksForTheVeryKey(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	l := acquire(t, d, time.Minute)
	_, err := d.cli.Delete(t.Context(), l.key)
	require.NoError(t, err)
	_, err = d.cli.Put(t.Context(), l.key, "", clientv3.WithLease(l.session.id))
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
}

// The reply to a Release is lost, and the core calls it again.
func TestRelease_calledAgainAfterALostReplyIsASuccess(t *testing.T) {
	t.Parallel()
	d, proxy := driverBehindAProxy(t)
	l := acquire(t, d, time.Minute)
	proxy.HoldReplies(true)
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan error)
	go func() { released <- l.Release(ctx) }()
	for {
		if _, replies := proxy.Held(); replies > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	require.ErrorIs(t, <-released, context.Canceled)
	proxy.HoldReplies(false)
	proxy.ResetConns()
	require.NoError(t, l.Release(t.Context()))
}

// Renewals fail: they are made again after a pause, and when one TTL has passed the session is over.
func TestSession_thatCannotBeRenewedEndsInTime(t *testing.T) {
	t.Parallel()
	for _, failure := range []codes.Code{codes.Unknown, codes.PermissionDenied} {
		var failed atomic.Int64
		d := driverAt(t, testserver.SharedEtcd(t), grpc.WithChainStreamInterceptor(func(
			context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			failed.Add(1)
			return nil, status.Error(failure, "no")
		}))
		_, err := d.cli.Get(t.Context(), "x")
		require.NoError(t, err, "there is a connection")
		began := time.Now()
		l, err := d.join(t.Context(), driver.Request{Name: fresh(), TTL: 4 * time.Second})
		require.NoError(t, err)
		s := l.session
		<-s.Context().Done()
		took := time.Since(began)
		assert.GreaterOrEqual(t, took, s.TTL)
		assert.Less(t, took, s.TTL*5)
		assert.Positive(t, failed.Load())
		assert.Less(t, failed.Load(), int64(200), "without a pause there are thousands")
		s.Leave(l)
	}
}

// Who does not wait for the session is not one of its users.
func TestJoin_thatIsGivenUpIsNoUse(t *testing.T) {
	t.Parallel()
	d, proxy := driverBehindAProxy(t)
	_, err := d.cli.Get(t.Context(), "x")
	require.NoError(t, err)
	proxy.HoldReplies(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req := driver.Request{Name: fresh(), TTL: time.Hour}
	_, err = d.join(ctx, req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.ReleaseReplies()
	l, err := d.join(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, []*lease{l}, l.session.Users())
	l.session.Leave(l)
}
