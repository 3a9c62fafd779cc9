// Package shares tests what etcd and ZooKeeper, where sessions stand in queues, do for shares. The
// conformance suite has what is promised of each backend.
package shares

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Backend is a server, and a name at it that nobody else uses.
type Backend struct {
	Addr  string
	Open  func(t testing.TB, addr string) Driver // a Driver with a session of its own
	Name  string
	TTL   time.Duration
	Queue func(t testing.TB) []string // who stand in the queue of Name, in order
}

// Run runs all tests, each with a Backend of its own.
func Run(t *testing.T, newBackend func(t testing.TB) Backend) {
	for name, test := range map[string]func(Backend, *testing.T){
		"a Downgrade beside other calls":                           Backend.downgradesMeanwhile,
		"a share that is ended by force ends no other":             Backend.isForced,
		"a share beside somebody's tries for the lock":             Backend.meetsTries,
		"a try, a share, its release or Downgrade is not answered": Backend.unanswered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newBackend(t), t)
		})
	}
}

func (b Backend) open(t testing.TB) Driver {
	t.Helper()
	return b.Open(t, b.Addr)
}

// Driver is what both backends have.
type Driver interface {
	driver.Driver
	driver.Operator
}

var eventually = testwait.Patience(time.Minute).Until

func (b Backend) request() driver.Request {
	return driver.Request{Name: b.Name, TTL: b.TTL, Metadata: "someone"}
}

// result is what a queued take has returned.
type result struct {
	driver.Lease
	err error
}

// queue starts a take, and waits until it stands in the queue as the nth.
func (b Backend) queue(ctx context.Context, t testing.TB, nth int, d Driver) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		l, err := claims.Queue(ctx, d, b.request())
		done <- result{l, err}
	}()
	eventually(t, "it stands in the queue", func() bool { return len(b.Queue(t)) == nth })
	return done
}

func (b Backend) await(t testing.TB, done <-chan result) driver.Lease {
	t.Helper()
	select {
	case r := <-done:
		require.NoError(t, r.err)
		return r.Lease
	case <-time.After(time.Minute):
		require.Fail(t, "it still waits")
		return nil
	}
}

func (b Backend) waits(t testing.TB, done <-chan result, who string) {
	t.Helper()
	select {
	case r := <-done:
		require.Failf(t, "granted", "%s: %v", who, r.err)
	case <-time.After(200 * time.Millisecond):
	}
}

func (b Backend) share(t testing.TB, d Driver) driver.Lease {
	t.Helper()
	l, err := claims.Share(t.Context(), d, b.request())
	require.NoError(t, err)
	return l
}

func release(t testing.TB, l driver.Lease) {
	t.Helper()
	require.NoError(t, l.Release(t.Context()))
}

// downgradesMeanwhile has holders downgrade while they are extended, and while they are released: a Downgrade changes what they are known by.
func (b Backend) downgradesMeanwhile(t *testing.T) {
	d := b.open(t)
	downgrade := func() (l driver.Lease, done <-chan error) {
		l, err := claims.Take(t.Context(), d, b.request())
		require.NoError(t, err)
		return l, testwait.Go(func() error { return l.(driver.Downgrader).Downgrade(t.Context()) })
	}
	for range 20 {
		l, done := downgrade()
		for range 3 {
			require.NoError(t, l.Extend(t.Context(), b.TTL), "nobody has ended it")
		}
		require.NoError(t, <-done)
		require.NoError(t, l.Extend(t.Context(), b.TTL))
		release(t, l)

		l, done = downgrade()
		release(t, l)
		if err := <-done; err != nil {
			require.ErrorIs(t, err, driver.ErrLost)
		}
		require.Empty(t, b.Queue(t), "it was released")
	}
}

// isForced has a share, and no other, end by force.
func (b Backend) isForced(t *testing.T) {
	d, other := b.open(t), b.open(t)
	stays, ends := b.share(t, d), b.share(t, other)
	writer := b.queue(t.Context(), t, 3, d)
	state, err := other.Inspect(t.Context(), b.Name)
	require.NoError(t, err)
	require.True(t, state.Held)
	assert.Equal(t, stays.Token(), state.Token)
	assert.Equal(t, driver.Participant{}, state.Holder)
	require.Len(t, state.Shares, 2)
	assert.Equal(t, "someone", state.Shares[0].Metadata)
	require.Len(t, state.Waiters, 1)
	require.ErrorIs(t, d.ForceRelease(t.Context(), b.Name, driver.State{Held: true, Holder: state.Waiters[0]}), driver.ErrHeld, "a waiter")
	require.NoError(t, d.ForceRelease(t.Context(), b.Name, driver.State{Held: true, Holder: state.Shares[1], Token: state.Token}))
	require.ErrorIs(t, ends.Extend(t.Context(), b.TTL), driver.ErrLost)
	require.ErrorIs(t, ends.Release(t.Context()), driver.ErrLost)
	b.waits(t, writer, "there is a share")
	require.NoError(t, stays.Extend(t.Context(), b.TTL))
	release(t, stays)
	release(t, b.await(t, writer))

	b.share(t, d)
	b.share(t, other)
	state, err = d.Inspect(t.Context(), b.Name)
	require.NoError(t, err)
	require.NoError(t, d.ForceRelease(t.Context(), b.Name, state))
	assert.Empty(t, b.Queue(t), "all shares that were shown have ended")
}

// meetsTries has somebody try in vain to be the writer, again and again. That keeps no reader from
// joining another.
func (b Backend) meetsTries(t *testing.T) {
	d, other := b.open(t), b.open(t)
	stays := b.share(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := testwait.Go(func() (err error) {
		for err = driver.ErrHeld; errors.Is(err, driver.ErrHeld); {
			_, err = claims.Take(ctx, other, b.request())
		}
		return err
	})
	for range 100 {
		release(t, b.share(t, d))
	}
	cancel()
	require.ErrorIs(t, <-tries, context.Canceled)
	release(t, stays)
}

// unanswered has the replies to what a Driver asks for be lost, until its connection is mended: what it asks for then ends as if they had come.
func (b Backend) unanswered(t *testing.T) {
	proxy := testserver.NewProxy(t, b.Addr)
	other, through := b.open(t), b.Open(t, proxy.Addr())
	unanswered := func(call func(ctx context.Context) error) {
		t.Helper()
		proxy.DropReplies(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, call(ctx), "no reply comes")
		proxy.DropReplies(false)
		proxy.ResetConns()
	}
	again := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		eventually(t, what, func() bool { // the connection has been reset
			err := call(t.Context())
			require.NotErrorIs(t, err, driver.ErrLost, what)
			require.NotErrorIs(t, err, driver.ErrHeld, what)
			return err == nil
		})
	}
	release(t, b.share(t, through)) // there is a connection, and a session
	for _, shared := range []bool{false, true} {
		req := b.request()
		req.Shared = shared
		try := through.Claim(req)
		ask := func(ctx context.Context) error {
			_, err := try.Ask(ctx)
			return err
		}
		unanswered(ask)
		again("asked again it is granted", ask)
		assert.Len(t, b.Queue(t), 1, "once")
		require.NoError(t, try.Extend(t.Context(), b.TTL))
		release(t, try)
		assert.Empty(t, b.Queue(t))
	}

	stays := b.share(t, other)
	var l driver.Lease
	unanswered(func(ctx context.Context) (err error) {
		req := b.request()
		req.Shared = true
		l, err = claims.Queue(ctx, through, req)
		return err
	})
	require.NotNil(t, l, "it may have been granted")
	_ = l.Release(t.Context())
	assert.Len(t, b.Queue(t), 1, "nothing is left of it")

	l = b.share(t, through)
	assert.Equal(t, stays.Token(), l.Token())
	unanswered(l.Release)
	again("its release was its own doing", l.Release)
	assert.Len(t, b.Queue(t), 1)
	require.NoError(t, stays.Extend(t.Context(), b.TTL), "it ended no other's")
	release(t, stays)

	l, err := claims.Take(t.Context(), through, b.request())
	require.NoError(t, err)
	unanswered(l.(driver.Downgrader).Downgrade)
	again("it is a share", l.(driver.Downgrader).Downgrade)
	beside := b.share(t, other)
	assert.Equal(t, l.Token(), beside.Token())
	release(t, l)
	release(t, beside)
	assert.Empty(t, b.Queue(t))
}
