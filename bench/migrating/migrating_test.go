// Package migrating runs what docs/migrating.md, docs/migrating-consensus.md and docs/changeover.md show, on real servers: the locks of other libraries, ours in their
// place, and both of them in the time between. What is in the page is here; a test compares the two.
package migrating

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/memory"
)

// way does its work under a lock called orders/42.
type way func(ctx context.Context, work func(context.Context) error) error

// ours is the way of the last release.
func ours(client *locker.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, work)
	}
}

// both is the way of the release between: our lock, and theirs within it.
func both(client *locker.Client, theirs way) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
			return theirs(ctx, work)
		})
	}
}

// changeOver is what the page says of three releases: neighbours exclude each other, the first and the last do not.
func changeOver(t *testing.T, theirs way, client *locker.Client) {
	t.Helper()
	both, ours := both(client, theirs), ours(client)
	for _, pair := range []struct {
		first, second way
		name          string
	}{
		{theirs, theirs, "theirs, theirs"},
		{theirs, both, "theirs, both"},
		{both, theirs, "both, theirs"},
		{both, both, "both, both"},
		{both, ours, "both, ours"},
		{ours, both, "ours, both"},
		{ours, ours, "ours, ours"},
	} {
		t.Run(pair.name, func(t *testing.T) { excludes(t, pair.first, pair.second) })
	}
	t.Run("theirs and ours do not exclude each other", func(t *testing.T) {
		together := false
		require.NoError(t, theirs(limited(t), func(ctx context.Context) error {
			return ours(ctx, func(context.Context) error { together = true; return nil })
		}))
		assert.True(t, together)
	})
}

// excludes requires that the second does not begin its work before the first has ended, and does then.
func excludes(t *testing.T, first, second way) {
	t.Helper()
	ctx := limited(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var ended, overlap atomic.Bool
	one := start(func() error {
		return first(ctx, func(context.Context) error {
			close(begun)
			<-end
			ended.Store(true)
			return nil
		})
	})
	select {
	case <-begun:
	case err := <-one:
		require.NoError(t, err, "the first")
	}
	two := start(func() error {
		return second(ctx, func(context.Context) error {
			overlap.Store(!ended.Load())
			return nil
		})
	})
	time.Sleep(100 * time.Millisecond) // enough to see most that do not exclude each other, and never too little for those that do
	close(end)
	require.NoError(t, <-one, "the first")
	require.NoError(t, <-two, "the second")
	assert.False(t, overlap.Load(), "both were at work")
}

// limited ends long after anything here is done.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// briefly ends while somebody waits for a lock that is not given back.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// made is a Client that is closed with the test.
func made(t *testing.T) func(*locker.Client, error) *locker.Client {
	return func(client *locker.Client, err error) *locker.Client {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
}

func startRedis(t *testing.T) *goredis.Client {
	t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: testserver.Redis(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// outlast waits until a Redis key is gone.
func outlast(t *testing.T, rdb *goredis.Client, key string) {
	t.Helper()
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 0 }, 20*time.Second, 5*time.Millisecond, key)
}

// From one backend of ours to another, it is the same.
func TestOurs_changeOver(t *testing.T) {
	before, after := made(t)(locker.Open(t.Context(), "mem://before")), made(t)(locker.Open(t.Context(), "mem://after"))
	changeOver(t, ours(before), after)
}

// What ours says where theirs had words of its own.
func TestOurs_errors(t *testing.T) {
	ctx := t.Context()
	client := made(t)(locker.Open(ctx, "mem://errors"))
	m, other := client.Mutex("orders/42"), client.Mutex("orders/42")
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld)
	require.NoError(t, m.Lock(ctx))
	require.ErrorIs(t, other.TryLock(ctx), locker.ErrHeld)
	err := m.Lock(briefly(t)) // the holder's own, too: it is not reentrant
	require.ErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, m.Unlock(ctx))
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld)
	require.NoError(t, m.TryLock(ctx))
	require.NoError(t, m.Unlock(ctx))

	brief := client.Mutex("orders/42", locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	require.NoError(t, brief.Lock(ctx))
	<-brief.Lost()
	assert.Zero(t, brief.FencingToken())
	require.ErrorIs(t, brief.Extend(ctx), locker.ErrLost)
	require.ErrorIs(t, brief.Unlock(ctx), locker.ErrLost)

	require.ErrorIs(t, brief.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		return nil
	}), locker.ErrLost)
}

// page returns the pages on migrating, one after the other.
func page(t *testing.T) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"migrating.md", "migrating-consensus.md", "changeover.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		all = append(all, text...)
	}
	return string(all)
}
