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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
	"github.com/go-locker/locker/internal/test/testserver"
)

// locks counts the names of all tests in this package, which have one server in common.
var locks atomic.Int64

// fresh returns the qualified name of a lock that no other test has.
func fresh() string { return fmt.Sprint("fresh:x", locks.Add(1)) }

func driverAt(t *testing.T, s *testserver.EtcdServer, opts ...grpc.DialOption) *Driver {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop(), DialOptions: opts})
	require.NoError(t, err)
	d, err := NewDriver(cli)
	require.NoError(t, err)
	d.owned = true
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// What a clean-up is for, step by step: the take reaches the server after it.
func TestTakeAfterItsRelease(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	ctx, name := t.Context(), fresh()
	contender := func() (*lease, *outage.Outage) {
		o := d.newOutage(10*time.Second, unheard)
		l, err := d.contend(ctx, driver.Request{Name: name, TTL: o.TTL}, o)
		require.NoError(t, err)
		return l, o
	}
	keys := func() int64 {
		resp, err := d.cli.Get(ctx, folderOf(name), clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	for how, take := range map[string]func(l *lease, o *outage.Outage){
		"queue": func(l *lease, o *outage.Outage) { _, _ = l.enqueue(ctx, o) },
		"try":   func(l *lease, o *outage.Outage) { _ = l.try(ctx, o) },
	} {
		t.Run(how, func(t *testing.T) {
			l, o := contender()
			l.doubtful = true
			require.NoError(t, l.Release(ctx))
			take(l, o)
			assert.Zero(t, keys(), "the mark forbids it")

			l, o = contender()
			take(l, o)
			l.doubtful = true
			require.NoError(t, l.Release(ctx), "the holder's own release in doubt")
			take(l, o)
			assert.Zero(t, keys(), "the mark forbids it also to one who held")

			l, o = contender()
			_, err := l.remove(ctx, 0, false)
			require.NoError(t, err)
			take(l, o)
			assert.EqualValues(t, 1, keys(), "without a mark it does come")
			require.NoError(t, l.Release(ctx))
		})
	}
}

// An owner is used again, so that a folder does not fill with keys that were; one in doubt never is.
func TestOwner_isUsedAgainUnlessInDoubt(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: 10 * time.Second}
	take := func() *lease {
		l, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		return l.(*lease)
	}
	first := take()
	_, err := d.Acquire(t.Context(), req)
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, first.Release(t.Context()))
	again := take()
	assert.Len(t, again.session.owners, 1, "two contenders at once have made two owners")
	assert.Greater(t, again.Token(), first.Token())
	require.NoError(t, first.Release(t.Context()), "once more, by one whose owner is another's now")
	require.ErrorIs(t, first.Extend(t.Context(), req.TTL), locker.ErrLost)
	require.NoError(t, again.Extend(t.Context(), req.TTL), "untouched")
	again.doubtful = true
	require.NoError(t, again.Release(t.Context()))
	for range 3 {
		next := take()
		assert.NotEqual(t, again.owner, next.owner)
		require.NoError(t, next.Release(t.Context()))
	}
}

func TestSession_ofManyDoubtsIsReplacedAndEndsWithItsLastUser(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	ctx := t.Context()
	req := driver.Request{Name: fresh(), TTL: 10 * time.Second}
	first, err := d.join(ctx, req)
	require.NoError(t, err)
	for range maxDoubts {
		again, err := d.join(ctx, req)
		require.NoError(t, err)
		require.Same(t, first.session, again.session)
		again.session.doubt()
		again.session.Leave(again)
	}
	second, err := d.join(ctx, req)
	require.NoError(t, err)
	require.NotSame(t, first.session, second.session)
	require.NoError(t, first.session.renew(ctx), "who uses it goes on to")
	first.session.Leave(first)
	select {
	case <-first.session.Context().Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the replaced session goes on without users")
	}
	require.NoError(t, second.session.renew(ctx))
	second.session.Leave(second)
	require.NoError(t, d.Close())
	_, err = d.join(ctx, req)
	assert.ErrorIs(t, err, locker.ErrClosed)
}

// A keepalive whose answer comes when the session counts as ended does not revive it.
func TestSession_thatWasNotConfirmedInTimeIsOver(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: 10 * time.Second}
	l, err := d.join(t.Context(), req)
	require.NoError(t, err)
	s := l.session
	sent := s.until.Add(-s.TTL)
	assert.True(t, s.confirm(sent.Add(-time.Second)), "an older one that was late")
	assert.LessOrEqual(t, s.Left(), s.TTL, "counted from when it was sent")
	s.mu.Lock()
	s.until = sent // one TTL later
	s.mu.Unlock()
	require.ErrorIs(t, s.renew(t.Context()), errSessionEnded)
	assert.Zero(t, s.Left())
	next, err := d.join(t.Context(), req)
	require.NoError(t, err)
	assert.NotSame(t, s, next.session)
	next.session.Leave(next)
}

// The server is unreachable for longer than a Lock rides out, but not until the session ends.
func TestSession_outlivesAnOutageThatEndsInTime(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	var unreachable atomic.Bool
	d := driverAt(t, testserver.SharedEtcd(t), grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if unreachable.Load() {
			return nil, status.Error(codes.Unknown, "unreachable")
		}
		return open(ctx, desc, cc, method, opts...)
	}))
	l, err := d.join(t.Context(), driver.Request{Name: fresh(), TTL: ttl})
	require.NoError(t, err)
	s := l.session
	defer s.Leave(l)
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
			require.False(t, time.Now().After(deadline), what)
		}
	}
	unreachable.Store(true)
	until("little is left", func() bool { return s.Left() < ttl/7 })
	unreachable.Store(false)
	until("it is renewed, or over", func() bool { return s.Left() > ttl/2 || s.Context().Err() != nil })
	assert.NoError(t, s.Context().Err(), "it ended though the server was back")
}

// stand puts a contender into the queue of a name.
func stand(t *testing.T, d *Driver, name string, o *outage.Outage) (l *lease, ahead string) {
	t.Helper()
	l, err := d.contend(t.Context(), driver.Request{Name: name, TTL: o.TTL}, o)
	require.NoError(t, err)
	ahead, err = l.enqueue(t.Context(), o)
	require.NoError(t, err)
	return l, ahead
}

// The key ahead is gone before it is watched, and its owner stands in the queue again, at the end.
func TestAwaitDeparture_noticesOneThatCameBeforeTheWatch(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	ctx := t.Context()
	name := fresh()
	o := d.newOutage(time.Minute, unheard)
	first, ahead := stand(t, d, name, o)
	require.Empty(t, ahead)
	second, ahead := stand(t, d, name, o)
	require.Equal(t, first.key, ahead)
	require.NoError(t, first.Release(ctx))
	third, behind := stand(t, d, name, o)
	require.Equal(t, first.key, third.key)
	require.Equal(t, second.key, behind)
	began := time.Now()
	next, err := second.awaitDeparture(ctx, o, ahead)
	require.NoError(t, err)
	assert.Empty(t, next)
	assert.Less(t, time.Since(began), 4*time.Second, "or it would look again only now and then")
	require.NoError(t, second.Release(ctx))
	require.NoError(t, third.Release(ctx))
}

func TestAwaitDeparture_endsWithTheSession(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := fresh()
	o := d.newOutage(time.Minute, unheard)
	_, _ = stand(t, d, name, o)
	l, ahead := stand(t, d, name, o)
	time.AfterFunc(100*time.Millisecond, l.session.End)
	began := time.Now()
	_, err := l.awaitDeparture(t.Context(), o, ahead)
	require.ErrorIs(t, err, errSessionEnded)
	assert.Less(t, time.Since(began), 4*time.Second)
}

// hanging is a stream whose server hangs.
type hanging struct{ grpc.ClientStream }

func (s hanging) RecvMsg(any) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// A waiter whose watch hangs, at a server that does, gets its turn all the same: it looks now and then.
func TestWaiter_whoseWatchHangsLooksNowAndThen(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t), grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, cc, method, opts...)
		if err == nil && method == "/etcdserverpb.Watch/Watch" {
			return hanging{s}, nil
		}
		return s, err
	}))
	req := driver.Request{Name: fresh(), TTL: 3 * time.Second}
	first, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	waits := make(chan struct{}, 100)
	got := make(chan error)
	go func() {
		second, err := d.AcquireQueued(t.Context(), req, func(error) { waits <- struct{}{} })
		if err == nil {
			err = second.Release(t.Context())
		}
		got <- err
	}()
	<-waits
	require.NoError(t, first.Release(t.Context()))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits")
	}
}
