package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Two names of one server are two votes of it: a majority of three would be one server. A server
// tells who it is by INFO. Where the user has no right to that, nothing is noticed, and the lock is
// worth no more than one server.
func TestNodes_thatAreOneServerAreRefused(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 2, testserver.RedisConfig("user blind on >secret ~* &* +@all -info"))
	addrs := q.addrs()
	localhost := strings.Replace(addrs[0], "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		user, nodes string
		refused     bool
	}{
		{"", strings.Join([]string{addrs[0], localhost, addrs[1]}, ","), true},
		{"", strings.Join([]string{addrs[0], addrs[1], testserver.NewProxy(t, addrs[1]).Addr()}, ","), true},
		{"blind:secret@", strings.Join([]string{addrs[0], localhost, addrs[1]}, ","), false},
	} {
		client, err := locker.Open(t.Context(), "redlock://"+c.user+c.nodes+"?node_timeout=2s")
		require.NoError(t, err)
		for _, lock := range []func(context.Context) error{client.Mutex("x").TryLock, client.Mutex("y").Lock} {
			err := lock(t.Context())
			if !c.refused {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, locker.ErrUnsupported, c.nodes)
			require.ErrorContains(t, err, "are one server")
		}
		require.NoError(t, client.Close())
	}
}

// A client that has just started, and whose first call waits, comes after those who wait already,
// and before those who come later: the nodes' clocks are ahead of its own, or behind.
func TestWait_aNewClientHasItsPlaceByTheNodesClocks(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Second, -10 * time.Second} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, 3, testserver.RedisClock())
			for _, s := range q.servers {
				s.ShiftClock(off)
			}
			old := unhurriedClient(t, q.addrs())
			h := q.held(t, old)
			order := make(chan string, 3)
			come := func(name string, c *locker.Client, n int64) <-chan error {
				done := make(chan error, 1)
				go func() {
					h, err := c.Mutex(contested).Acquire(t.Context())
					if err == nil {
						order <- name
						err = h.Unlock(t.Context())
					}
					done <- err
				}()
				q.eventuallyQueueing(t, n, 0, 1, 2)
				time.Sleep(time.Second) // readings of a clock differ by a round trip
				return done
			}
			all := []<-chan error{come("first", old, 1), come("new", unhurriedClient(t, q.addrs()), 2), come("last", old, 3)}
			require.NoError(t, h.Unlock(t.Context()))
			for _, done := range all {
				require.NoError(t, <-done)
			}
			assert.Equal(t, []string{"first", "new", "last"}, []string{<-order, <-order, <-order})
		})
	}
}
