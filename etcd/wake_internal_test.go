package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// One that waits is woken when asking again may bring more, and is to ask now and then in any case:
// a watch may hang, at a server that does.
func TestWake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shared bool
		change func(t *testing.T, holder driver.Lease, waiter *claim, network *testserver.Proxy) error
	}{
		"what is before it goes": {change: func(t *testing.T, holder driver.Lease, _ *claim, _ *testserver.Proxy) error {
			return holder.Release(t.Context())
		}},
		"what is before a share becomes one": {true, func(t *testing.T, holder driver.Lease, _ *claim, _ *testserver.Proxy) error {
			return holder.(driver.Downgrader).Downgrade(t.Context())
		}},
		"its session ends": {change: func(_ *testing.T, _ driver.Lease, waiter *claim, _ *testserver.Proxy) error {
			waiter.entry.session.End()
			return nil
		}},
		"the stream breaks, and there is another": {change: func(_ *testing.T, _ driver.Lease, _ *claim, network *testserver.Proxy) error {
			network.ResetConns()
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.SharedEtcd(t)
			network := testserver.NewProxy(t, s.Addr())
			req, woken := driver.Request{Name: fresh(), TTL: time.Minute}, make(chan struct{}, 1)
			holder, err := claims.Take(t.Context(), driverAt(t, s), req)
			require.NoError(t, err)
			req.Shared, req.Wake = c.shared, func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}
			waiter := driverAt(t, network).Claim(req).(*claim)
			for _, what := range []string{"the watch has begun", name} {
				next, err := waiter.Ask(t.Context())
				require.ErrorIs(t, err, driver.ErrHeld)
				assert.Positive(t, next)
				assert.Less(t, next, 7*time.Second)
				if what == name {
					require.NoError(t, c.change(t, holder, waiter, network))
				}
				select {
				case <-woken:
				case <-time.After(time.Minute):
					t.Fatal("not woken though " + what)
				}
			}
		})
	}
}

// What is before it goes while nothing is heard of that, and it looks by itself. The watch ends with
// the wait.
func TestWake_noWatchOutlivesItsWait(t *testing.T) {
	t.Parallel()
	d, name := driverAt(t, testserver.SharedEtcd(t)), fresh()
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
	s, name := testserver.SharedEtcd(t), fresh()
	holder, err := claims.Take(t.Context(), driverAt(t, s), driver.Request{Name: name, TTL: time.Minute})
	require.NoError(t, err)
	d := driverAt(t, s)
	share := func() (*claim, chan struct{}) {
		woken := make(chan struct{}, 10)
		c := d.Claim(driver.Request{Name: name, TTL: time.Minute, Shared: true, Wake: func() { woken <- struct{}{} }}).(*claim)
		_, err := c.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		return c, woken
	}
	expect := func(woken chan struct{}, why string) {
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Fatal("not woken though " + why)
		}
	}
	first, woken := share()
	expect(woken, "the watch has begun")
	_, err = first.Ask(t.Context())
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
	second.entry.seen = 1
	w.mu.Unlock()
	w.await(second.entry, second.entry.ahead)
	expect(alsoWoken, "its look was earlier than the watch")

	require.NoError(t, holder.Release(t.Context()))
	expect(woken, "what is before it has gone")
	expect(alsoWoken, "what is before it has gone")
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
	login := func(user, addr string) *clientv3.Client {
		cli, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Username: user, Password: "s3cret", Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	driverOf := func(addr string) *backend {
		d := newDriver(login("alice", addr))
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	a, b, root := driverOf(s.Addr()), driverOf(network.Addr()), login("root", s.Addr())
	meanwhile := func(f func()) {
		name := "locker:" + fresh()
		holder, err := claims.Take(t.Context(), a, driver.Request{Name: name, TTL: time.Minute})
		require.NoError(t, err)
		woken := make(chan struct{}, 10)
		waiter := b.Claim(driver.Request{Name: name, TTL: time.Minute, Wake: func() { woken <- struct{}{} }}).(*claim)
		expect := func(what string) {
			select {
			case <-woken:
			case <-time.After(20 * time.Second):
				t.Fatal("not woken though " + what)
			}
		}
		_, err = waiter.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		expect("the watch has begun")
		f()
		require.NoError(t, holder.Release(t.Context()))
		expect("what is before it has gone")
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
