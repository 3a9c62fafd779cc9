package locker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// The TTL of most tests, and what the allowance for drift leaves of it.
const (
	ttl   = 10 * time.Second
	drift = 102 * time.Millisecond
	life  = ttl - drift
)

var errRefused = errors.New("connection refused")

// bubble runs a test in no wall time over a backend of its own. It fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, b *backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &backend{start: time.Now(), locks: map[string]*lease{}, over: make(chan struct{}), always: map[op]fault{}, once: map[op][]fault{}}
		t.Cleanup(func() { close(b.over) })
		f(t, b)
	})
}

// client makes a Client over a driver of its own, with the TTL of the tests. It is closed at the end.
func (b *backend) client(t *testing.T, opts ...locker.Option) *locker.Client {
	t.Helper()
	return clientOf(t, &fakeDriver{b: b}, opts...)
}

func clientOf(t *testing.T, d driver.Driver, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.New(d, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locked is a Mutex of a Client of its own that has taken name.
func (b *backend) locked(t *testing.T, name string, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	m := b.client(t, opts...).Mutex(name)
	require.NoError(t, m.Lock(t.Context()))
	return m
}

// fired reports whether c is closed.
func fired(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// took is how long f takes.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// inBackground runs f, and returns where its error will be.
func inBackground(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// noErrorIs asserts that err is an error that matches none of those.
func noErrorIs(t *testing.T, err error, none ...error) {
	t.Helper()
	if assert.Error(t, err) {
		for _, n := range none {
			assert.NotErrorIs(t, err, n)
		}
	}
}
