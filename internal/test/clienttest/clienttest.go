// Package clienttest tests what is built on a Client, on several backends.
package clienttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// TTL is one that a busy machine keeps, Long that of holds that are not to end by themselves: servers of ZooKeeper refuse longer ones.
const (
	TTL  = 3 * time.Second
	Long = 36 * time.Second
)

const patience = testwait.Patience(Long / 2)

// Open makes a Client as a process of its own would have it.
type Open func(opts ...locker.Option) *locker.Client

// Of returns an Open of a URL.
func Of(t testing.TB, url string) Open {
	t.Helper()
	return func(opts ...locker.Option) *locker.Client {
		t.Helper()
		c, err := locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(Long)}, opts...)...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// OnMemoryAndRedis runs a test on both, whose packages the test imports. silence, which is nil of memory, has the server stop answering until resume is called.
func OnMemoryAndRedis(t *testing.T, test func(t *testing.T, open Open, silence func() (resume func()))) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, Of(t, fmt.Sprintf("mem://%x", rand.Uint64())), nil)
	})
	t.Run("redis", func(t *testing.T) {
		testserver.Need(t, "redis-server")
		t.Parallel()
		s := testserver.Redis(t)
		test(t, Of(t, "redis://"+s.Addr()), func() func() { s.Stop(); return sync.OnceFunc(s.Continue) })
	})
}

// Turns notes who is inside, and the last token of each name.
type Turns struct {
	mu     sync.Mutex
	inside map[string]bool
	last   map[string]uint64
}

// Take is inside a name for d. It returns an error if another is, or if the token is not larger than that of the one before.
func (t *Turns) Take(name string, token uint64, d time.Duration) error {
	t.mu.Lock()
	if t.inside == nil {
		t.inside, t.last = map[string]bool{}, map[string]uint64{}
	}
	occupied, last := t.inside[name], t.last[name]
	t.inside[name], t.last[name] = true, token
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.inside[name] = false
		t.mu.Unlock()
	}()
	if occupied {
		return fmt.Errorf("two hold %q at once", name)
	}
	if token <= last {
		return fmt.Errorf("the token of %q is %d, and was %d before", name, token, last)
	}
	time.Sleep(d)
	return nil
}

// Operators tests what operators do with ForceRelease and List.
func Operators(t *testing.T, open Open) {
	t.Helper()
	t.Run("a forced release hands over and is a loss", func(t *testing.T) { t.Parallel(); forcedRelease(t, open) })
	t.Run("a forced release ends no other hold", func(t *testing.T) { t.Parallel(); staleForce(t, open) })
	t.Run("a list has the names that are held", func(t *testing.T) { t.Parallel(); list(t, open) })
}

// hold takes a lock, for as long as a busy machine may need.
func hold(t *testing.T, c *locker.Client, name string) *locker.Hold {
	t.Helper()
	h, err := c.Mutex(name).Acquire(testwait.Context(t, time.Duration(patience)))
	require.NoError(t, err)
	return h
}

func forcedRelease(t *testing.T, open Open) {
	t.Helper()
	operator := open()
	for what, hear := range map[string]func(h *locker.Hold) error{
		"Extend": func(h *locker.Hold) error { return h.Extend(t.Context()) },
		"Unlock": func(h *locker.Hold) error { return h.Unlock(t.Context()) },
		"a renewal": func(h *locker.Hold) error {
			patience.Until(t, "it is lost", func() bool { return h.Err() != nil })
			return h.Err()
		},
	} {
		name, ttl := "forced "+what, Long
		if what == "a renewal" {
			ttl = TTL
		}
		former := hold(t, open(locker.WithTTL(ttl)), name)
		waiting := open().Mutex(name)
		var next *locker.Hold
		served := testwait.Go(func() (err error) {
			next, err = waiting.Acquire(testwait.Context(t, time.Duration(patience)))
			return err
		})
		shown, err := operator.Inspect(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, operator.ForceRelease(t.Context(), name, shown))
		require.NoError(t, patience.Result(t, served), "the waiter, long before the hold would expire")
		assert.Greater(t, next.Token(), former.Token())
		require.ErrorIs(t, hear(former), locker.ErrLost, what)
		require.ErrorIs(t, operator.Mutex(name).TryLock(t.Context()), locker.ErrHeld, "the next hold is there")
		require.NoError(t, next.Unlock(t.Context()))
	}
}

func staleForce(t *testing.T, open Open) {
	t.Helper()
	c, operator := open(), open()
	first := hold(t, c, "stale")
	shown, err := operator.Inspect(t.Context(), "stale")
	require.NoError(t, err)
	require.NoError(t, first.Unlock(t.Context()))
	require.ErrorIs(t, operator.ForceRelease(t.Context(), "stale", shown), locker.ErrNotHeld)
	second := hold(t, c, "stale") // of the same process, on the same session if there is one
	require.ErrorIs(t, operator.ForceRelease(t.Context(), "stale", shown), locker.ErrHeld)
	require.NoError(t, second.Extend(t.Context()))
	require.NoError(t, second.Unlock(t.Context()))
}

// many is above the number of locks that a page has, on most backends.
const many = 300

func list(t *testing.T, open Open) {
	t.Helper()
	const own = "list"
	c, operator := open(), open()
	released := hold(t, c, own+"/released")
	want := []string{own, own + "/}%{*?[a]\\:é\n", own + "/a/b", own + "%", own + "\x00"}
	for i := range many {
		want = append(want, fmt.Sprintf("%s/%d", own, i))
	}
	var holds []*locker.Hold
	for _, name := range want {
		holds = append(holds, hold(t, c, name))
	}
	others := []*locker.Hold{hold(t, c, own[1:]), hold(t, c, "other")}
	require.NoError(t, released.Unlock(t.Context()))
	assert.ElementsMatch(t, want, names(t, operator, own))
	assert.Equal(t, want[2:3], names(t, operator, own+"/a"))
	for _, h := range append(holds, others...) {
		require.NoError(t, h.Unlock(t.Context()), "a hold that was listed")
	}
	assert.Empty(t, names(t, operator, own))
}

// names returns what List has, sorted, each once.
func names(t *testing.T, c *locker.Client, prefix string) (all []string) {
	t.Helper()
	for name, err := range c.List(t.Context(), prefix) {
		require.NoError(t, err)
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
