package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	harness.Outage(t, s.URL(), s.Kill)
}

// A server that takes no connections for a while has answered nothing.
func TestOutage_isAServerThatTakesNoConnections(t *testing.T) {
	t.Parallel()
	t.Run("all are in use", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t, testserver.PostgresSettings("max_connections=5", "superuser_reserved_connections=0"))
		var others []*pgx.Conn
		for len(others) < 5 {
			others = append(others, session(t, s.URL()))
		}
		c := openURL(t, s.URL())
		require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "53300")
		locked := make(chan error, 1)
		go func() { locked <- c.Mutex("x").Lock(t.Context()) }()
		time.Sleep(time.Second) // a Lock that does not wait would fail meanwhile
		for _, o := range others {
			require.NoError(t, o.Close(t.Context()))
		}
		require.NoError(t, <-locked)
	})
	t.Run("it shuts down", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t)
		session(t, s.URL()) // which it waits for
		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGTERM))
		c := openURL(t, s.URL())
		require.Eventually(t, func() bool {
			_, err := pgx.Connect(t.Context(), s.URL())
			return err != nil
		}, time.Minute, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Mutex("x").Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "57P03")
	})
}

// All connections that are open fall silent, and new ones work, as behind a firewall that has lost
// its table.
func TestOutage_ofTheConnectionsThatAreOpen(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	network := testserver.NewProxy(t, s.Addr())
	url := strings.Replace(s.URL(), s.Addr(), network.Addr(), 1)
	c, other := openURL(t, url, locker.WithTTL(12*time.Second)), openURL(t, s.URL())
	m, ahead, behind := c.Mutex("held"), other.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, ahead.Lock(t.Context()))
	locked := waits(t, t.Context(), other, behind, 1)
	token := m.FencingToken()
	for i := range 3 {
		var all []<-chan error
		for k := range 10 { // on all connections of the pool
			z := c.Mutex(fmt.Sprint("z", i, k))
			all = append(all, async(func() error { return z.Lock(t.Context()) }))
		}
		for _, done := range all {
			require.NoError(t, await(t, done))
		}
		network.HushConns()
		require.NoError(t, c.Mutex(fmt.Sprint("after", i)).Lock(t.Context()))
	}
	network.HushConns()
	unlock(t, ahead)
	require.NoError(t, await(t, locked))
	require.Equal(t, token, m.FencingToken())
	unlock(t, m, behind)
}
