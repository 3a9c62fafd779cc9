package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
