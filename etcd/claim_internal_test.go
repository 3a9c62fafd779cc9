package etcd

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func driverAt(t *testing.T, s interface{ Addr() string }, opts ...grpc.DialOption) *backend {
	t.Helper()
	return driverOf(t, clientv3.Config{Endpoints: []string{s.Addr()}, DialOptions: opts})
}

func driverOf(t *testing.T, config clientv3.Config) *backend {
	t.Helper()
	config.Logger = zap.NewNop()
	cli, err := clientv3.New(config)
	require.NoError(t, err)
	d := newDriver(cli)
	d.owned = true
	return testwait.Closed(d, nil)(t)
}

// What a mark is for, step by step: the take reaches the server after its release.
func TestTakeAfterItsRelease(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := claims.Fresh()
	keys := func() int64 {
		return fetch(t, d, folderOf(name), clientv3.WithPrefix(), clientv3.WithCountOnly()).Count
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

			for _, known := range []bool{true, false} { // or the reply to the take was lost
				c = d.Claim(req).(*claim)
				_, err = c.Ask(ctx)
				require.NoError(t, err)
				c.entry.doubtful.Store(true)
				if !known {
					c.entry.created.Store(0)
				}
				require.NoError(t, c.Release(t.Context()), "the holder's own release in doubt")
				take(c)
			}
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
			c := d.Claim(driver.Request{Name: claims.Fresh(), TTL: time.Minute, Shared: shared}).(*claim)
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
// is. A take that was refused leaves no doubt.
func TestOwner_isUsedAgainUnlessInDoubt(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: claims.Fresh(), TTL: 10 * time.Second}
	first := take(t, d, req)
	_, err := claims.Take(t.Context(), d, req)
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, first.Release(t.Context()))
	again := take(t, d, req)
	assert.Len(t, again.entry.session.owners, 1, "two contenders at once have made two owners")
	assert.Greater(t, again.Token(), first.Token())
	assert.Equal(t, []*entry{again.entry}, again.entry.session.Users())
	require.NoError(t, first.Release(t.Context()), "once more, by one whose owner is another's now")
	require.ErrorIs(t, first.Extend(t.Context(), req.TTL), locker.ErrLost)
	require.NoError(t, again.Extend(t.Context(), req.TTL), "untouched")
	again.entry.doubtful.Store(true)
	require.NoError(t, again.Release(t.Context()))
	for range 3 {
		next := take(t, d, req)
		assert.NotEqual(t, again.entry.owner, next.entry.owner)
		require.NoError(t, next.Release(t.Context()))
	}
	req.Metadata = strings.Repeat("x", 1600<<10)
	refused := d.Claim(req).(*claim)
	_, err = refused.Ask(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrRequestTooLarge)
	assert.False(t, refused.entry.doubtful.Load())
}

// The marks of doubts go with their session, which is replaced when it has many.
func TestSession_ofManyDoubtsIsReplaced(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	first := acquire(t, d, time.Minute)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxTombstones {
		c := d.Claim(driver.Request{Name: claims.Fresh(), TTL: time.Minute}).(*claim)
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

// The server has run out of space: nothing can be taken, but holds go on, can be released, and are
// handed over. After a take in doubt the release also writes a tombstone: that has to wait for
// space, the deletion of the key does not.
func TestNoSpace_holdsGoOnAndNothingIsTaken(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.Etcd(t))
	for _, doubtful := range []bool{false, true} {
		req := driver.Request{Name: claims.Fresh(), TTL: time.Minute}
		holder, _ := stand(t, d, req.Name)
		next, _ := stand(t, d, req.Name)
		holder.entry.doubtful.Store(doubtful)
		end := SpaceAlarm(t, d.cli)
		_, err := claims.Take(t.Context(), d, driver.Request{Name: claims.Fresh(), TTL: time.Minute})
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		require.NotErrorIs(t, err, driver.ErrHeld)
		require.NoError(t, holder.Extend(t.Context(), req.TTL))
		if err := holder.Release(t.Context()); doubtful {
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		} else {
			require.NoError(t, err)
		}
		_, err = next.Ask(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Release(t.Context()))
		end()
		require.NoError(t, holder.Release(t.Context()))
		assert.Equal(t, doubtful, len(fetch(t, d, holder.entry.tombstone).Kvs) == 1)
		require.NoError(t, take(t, d, req).Release(t.Context()), "there is space again")
	}
}

// SpaceAlarm has the servers refuse what takes space, as when they have run out of it.
func SpaceAlarm(t conformance.TB, cli *clientv3.Client) (end func()) {
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		req := &etcdserverpb.AlarmRequest{Action: action, MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE}
		if _, err := etcdserverpb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(ctx, req); err != nil {
			t.Fatalf("etcd: alarm: %v", err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	return func() { alarm(etcdserverpb.AlarmRequest_DEACTIVATE) }
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

// force ends a hold as an operator does, from another process.
func force(t *testing.T, c *claim) {
	t.Helper()
	operator := driverAt(t, testserver.SharedEtcd(t))
	shown, err := operator.Inspect(t.Context(), c.Name)
	require.NoError(t, err)
	require.NoError(t, operator.ForceRelease(t.Context(), c.Name, shown))
	require.ErrorIs(t, operator.ForceRelease(t.Context(), c.Name, shown), driver.ErrNotHeld)
}

// The first release was carried out, and its reply lost. Sent again, it succeeds. It does not if the
// session has ended, perhaps before the first arrived.
func TestRelease_thatIsSentAgain(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	c := acquire(t, d, time.Minute)
	_, err := c.entry.remove(t.Context(), c.entry.created.Load(), false)
	require.NoError(t, err)
	require.NoError(t, c.Release(t.Context()))
	c = acquire(t, d, time.Minute)
	c.entry.releases.Store(1)
	_, err = d.cli.Revoke(t.Context(), c.entry.session.id)
	require.NoError(t, err)
	require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
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
			next := take(t, d, driver.Request{Name: c.Name, TTL: time.Minute})
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
	state, err := d.Inspect(t.Context(), c.Name)
	require.NoError(t, err)
	assert.Equal(t, driver.State{}, state, "it has put nothing")
	require.ErrorIs(t, c.Extend(t.Context(), time.Minute), driver.ErrLost)
	require.NoError(t, d.Close())
	assert.Empty(t, fetch(t, driverAt(t, testserver.SharedEtcd(t)), strings.TrimSuffix(c.entry.folder, "/"), clientv3.WithPrefix()).Kvs, "with the session goes the mark")
}

// take takes the lock of req.
func take(t *testing.T, d *backend, req driver.Request) *claim {
	t.Helper()
	l, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	return l.(*claim)
}

func share(t *testing.T, d *backend, req driver.Request) *claim {
	t.Helper()
	req.Shared = true
	return take(t, d, req)
}

func acquire(t *testing.T, d *backend, ttl time.Duration) *claim {
	t.Helper()
	return take(t, d, driver.Request{Name: claims.Fresh(), TTL: ttl})
}

// fetch reads a key, or keys.
func fetch(t *testing.T, d *backend, key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	t.Helper()
	found, err := d.cli.Get(t.Context(), key, opts...)
	require.NoError(t, err)
	return found
}

// An owner is for one contender after the other: the key ahead may be gone, and have come back
// behind ours.
func TestLook_seesThatTheKeyAheadIsAnothers(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := claims.Fresh()
	a, _ := stand(t, d, name)
	b, ahead := stand(t, d, name)
	require.Equal(t, a.entry.key, ahead)
	b.entry.ahead = a.entry.key
	next, err := b.entry.readPredecessor(t.Context(), b.entry.ahead)
	require.NoError(t, err)
	assert.Equal(t, a.entry.key, next)
	require.NoError(t, a.Release(t.Context()))
	again, ahead := stand(t, d, name)
	require.Equal(t, a.entry.key, again.entry.key)
	require.Equal(t, b.entry.key, ahead)
	next, err = b.entry.readPredecessor(t.Context(), b.entry.ahead)
	require.NoError(t, err)
	assert.Empty(t, next, "nobody is ahead")
	_, err = d.cli.Delete(t.Context(), b.entry.key)
	require.NoError(t, err)
	_, err = b.entry.readPredecessor(t.Context(), b.entry.ahead)
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
	third, err := claims.Take(ctx, d, driver.Request{Name: claims.Fresh(), TTL: time.Minute})
	require.NoError(t, err)
	assert.NotSame(t, s, third.(*claim).entry.session, "it may have ended")
}

// renewing calls f before each stream is opened, as renewals do.
func renewing(f func() error) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if err := f(); err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	})
}

// A renewal, which is one for all holds, is slow. They last for a TTL from when it was sent.
func TestSession_countsFromWhenTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	const slow = 600 * time.Millisecond
	var sent atomic.Int64
	d := driverAt(t, testserver.SharedEtcd(t), renewing(func() error { sent.Add(1); time.Sleep(slow); return nil }))
	l := acquire(t, d, time.Minute)
	before := l.Validity()
	time.Sleep(2 * slow)
	assert.Equal(t, []error{nil, nil}, d.ExtendAll(t.Context(), []driver.Claim{l, acquire(t, d, time.Minute)}, time.Minute))
	assert.EqualValues(t, 1, sent.Load())
	assert.Greater(t, l.Validity(), before-2*slow, "it was renewed")
	assert.LessOrEqual(t, l.Validity(), time.Minute-slow)
}

// The longest TTL that etcd takes is kept as it is, and a longer one is refused.
func TestSession_ofCenturies(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	l := acquire(t, d, maxTTL)
	require.NoError(t, l.Extend(t.Context(), maxTTL))
	assert.Greater(t, l.Validity(), maxTTL-time.Hour)
	renew, _ := l.entry.session.Due()
	assert.Greater(t, renew.Sub(clock.Now()), maxTTL/4)
	require.ErrorIs(t, d.CheckTTL(maxTTL+time.Second), driver.ErrUnsupported)
}

// Renewals fail: they are made again, each after a pause, until the session is over.
func TestSession_thatCannotBeRenewedEnds(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"refused": codes.PermissionDenied, "unreachable": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var failed atomic.Int64
			d := driverAt(t, testserver.SharedEtcd(t), renewing(func() error {
				failed.Add(1)
				return status.Error(code, "no")
			}))
			l := acquire(t, d, 4*time.Second)
			_, err := d.Claim(driver.Request{Name: l.Name, TTL: l.TTL, Wake: func() {}}).Ask(t.Context())
			require.ErrorIs(t, err, driver.ErrHeld, "whose watches are refused, too")
			<-l.entry.session.Context().Done()
			assert.Positive(t, failed.Load())
			assert.Less(t, failed.Load(), int64(200), "without a pause there are thousands")
		})
	}
}

// expectWake waits until a claim is woken.
func expectWake(t *testing.T, woken <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("not woken though " + why)
	}
}

// One that waits is woken when asking again may bring more, and is to ask now and then in any case:
// a watch may hang, at a server that does.
func TestWake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shared bool
		change func(t *testing.T, holder driver.Claim, waiter *claim, network *testserver.Proxy) error
	}{
		"what is before it goes": {change: func(t *testing.T, holder driver.Claim, _ *claim, _ *testserver.Proxy) error {
			return holder.Release(t.Context())
		}},
		"what is before a share becomes one": {true, func(t *testing.T, holder driver.Claim, _ *claim, _ *testserver.Proxy) error {
			return holder.(driver.Downgrader).Downgrade(t.Context())
		}},
		"its session ends": {change: func(_ *testing.T, _ driver.Claim, waiter *claim, _ *testserver.Proxy) error {
			waiter.entry.session.End()
			return nil
		}},
		"the stream breaks, and there is another": {change: func(_ *testing.T, _ driver.Claim, _ *claim, network *testserver.Proxy) error {
			network.ResetConns()
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.SharedEtcd(t)
			network := testserver.NewProxy(t, s.Addr())
			req, woken := driver.Request{Name: claims.Fresh(), TTL: time.Minute}, make(chan struct{}, 10)
			holder := take(t, driverAt(t, s), req)
			req.Shared, req.Wake = c.shared, func() { woken <- struct{}{} }
			waiter := driverAt(t, network).Claim(req).(*claim)
			for _, what := range []string{"the watch has begun", name} {
				next, err := waiter.Ask(t.Context())
				require.ErrorIs(t, err, driver.ErrHeld)
				assert.Positive(t, next)
				assert.Less(t, next, 7*time.Second)
				if what == name {
					require.NoError(t, c.change(t, holder, waiter, network))
				}
				expectWake(t, woken, what)
			}
		})
	}
}

// What is before it goes while nothing is heard of that, and it looks by itself. The watch ends
// with the wait.
func TestWake_noWatchOutlivesItsWait(t *testing.T) {
	t.Parallel()
	d, name := driverAt(t, testserver.SharedEtcd(t)), claims.Fresh()
	holder, _ := stand(t, d, name)
	waiter, _ := stand(t, d, name)
	w := waiter.entry.session.watcher
	_, err := waiter.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	assert.Equal(t, holder.entry.key, waiter.entry.ahead, "of which the next look reads")
	w.await(waiter.entry, "a key that is not there")
	require.NoError(t, holder.Release(t.Context()))
	_, err = waiter.Ask(t.Context())
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Empty(t, w.watched)
}

// Shares that wait for one writer have one watch. Who comes when that has begun, and has looked
// since, need not look again.
func TestWake_sharesHaveOneWatch(t *testing.T) {
	t.Parallel()
	s, name := testserver.SharedEtcd(t), claims.Fresh()
	holder := take(t, driverAt(t, s), driver.Request{Name: name, TTL: time.Minute})
	d := driverAt(t, s)
	share := func() (*claim, chan struct{}) {
		woken := make(chan struct{}, 10)
		c := d.Claim(driver.Request{Name: name, TTL: time.Minute, Shared: true, Wake: func() { woken <- struct{}{} }}).(*claim)
		_, err := c.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		return c, woken
	}
	first, woken := share()
	expectWake(t, woken, "the watch has begun")
	_, err := first.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	second, alsoWoken := share()
	third, leftWoken := share()
	w := first.entry.session.watcher
	watches := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.watched)
	}
	assert.Equal(t, 1, watches())
	assert.Empty(t, alsoWoken)

	require.NoError(t, third.Release(t.Context()))
	assert.Equal(t, 1, watches())
	w.mu.Lock()
	w.leave(second.entry)
	second.entry.seen.Store(1)
	w.mu.Unlock()
	w.await(second.entry, second.entry.ahead)
	expectWake(t, alsoWoken, "its look was earlier than the watch")

	require.NoError(t, holder.Release(t.Context()))
	expectWake(t, woken, "what is before it has gone")
	expectWake(t, alsoWoken, "what is before it has gone")
	assert.Empty(t, leftWoken)
	assert.Zero(t, watches())
	for _, c := range []*claim{first, second} {
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
	}
}

// A server refuses a watch, unlike all else, on a stream that stays open: when the token of the
// stream has expired, or a right is missing. The refusal has the number of no watch.
func TestWake_afterAWatchWasRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("alice", "s3cret"), testserver.EtcdArgs("--auth-token-ttl=1"))
	network := testserver.NewProxy(t, s.Addr())
	login := func(user, addr string) *backend {
		return driverOf(t, clientv3.Config{Endpoints: []string{addr}, Username: user, Password: "s3cret"})
	}
	a, b, root := login("alice", s.Addr()), login("alice", network.Addr()), login("root", s.Addr()).cli
	meanwhile := func(f func()) {
		name := "locker:" + claims.Fresh()
		holder := take(t, a, driver.Request{Name: name, TTL: time.Minute})
		woken := make(chan struct{}, 10)
		waiter := b.Claim(driver.Request{Name: name, TTL: time.Minute, Wake: func() { woken <- struct{}{} }}).(*claim)
		_, err := waiter.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		expectWake(t, woken, "the watch has begun")
		f()
		require.NoError(t, holder.Extend(t.Context(), time.Minute))
		require.NoError(t, holder.Release(t.Context()))
		expectWake(t, woken, "what is before it has gone")
	}
	for range 4 {
		meanwhile(func() { time.Sleep(time.Second) }) // the stream outlives its token
	}
	grant := func() {
		_, err := root.RoleGrantPermission(t.Context(), "locker", "locker:", "locker;", clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
	}
	meanwhile(func() {
		_, err := root.RoleRevokePermission(t.Context(), "locker", "locker:", "locker;")
		require.NoError(t, err)
		network.ResetConns()
		time.Sleep(2 * time.Second) // watches are refused
		grant()
	})
}

// The revision from which a watch is to begin is compacted: somebody may have come, and a loss is
// heard of all the same.
func TestWake_afterACompaction(t *testing.T) {
	t.Parallel()
	d, heard := driverAt(t, testserver.Etcd(t)), make(chan struct{}, 10)
	l, hear := acquire(t, d, time.Minute), func() { heard <- struct{}{} }
	require.NoError(t, acquire(t, d, time.Minute).Release(t.Context()))
	_, err := d.cli.Compact(t.Context(), fetch(t, d, l.entry.key).Header.Revision)
	require.NoError(t, err)
	s := l.entry.session
	s.watcher.awaitComer(t.Context(), l.entry, l.entry.created.Load(), hear)
	expectWake(t, heard, "somebody may have come")
	l.NotifyLost(hear)
	s.Watch([]*entry{l.entry})
	_, err = d.cli.Delete(t.Context(), l.entry.key)
	require.NoError(t, err)
	expectWake(t, heard, "its key is gone")
}
