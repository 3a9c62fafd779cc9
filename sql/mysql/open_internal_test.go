package mysql

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/test/fuzzurl"
)

func TestOpen_refuses(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://h": "name of the database", "mysql://h/a/b": "name of the database", "mysql://h1,h2/a": "one host",
		"mysql://h/a?tls=maybe": "tls", "mariadb://h/a?table=": "empty", "mysql://h/a?table=caf%C3%A9": "ASCII", "mysql://h/a?connect_timeout=0s": "connect_timeout", "mysql://h/a?pool_size=0": "pool_size", "mysql://h/a?charset=utf8": "charset",
	} {
		_, err := locker.Open(t.Context(), url)
		require.ErrorContains(t, err, want, url)
	}
	c, err := locker.Open(t.Context(), "mysql://app:s3cret@192.0.2.1/app?table=jobs.locks&tls=skip-verify&connect_timeout=1s&pool_size=2")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Equal(t, "`a``b`.`c.d`", quoted("a`b.c.d"))
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "mysql", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, err := connectorOf(u)
		return nil, err
	}, "h1:1/db?tls=true", "[::1]/x", "h?connect_timeout=1s")
}

// A connection that a server accepts and says nothing on ends, though whoever wants it has no
// deadline.
func TestConnect_toAServerThatIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	u, err := driver.ParseURL("mysql://" + listener.Addr().String() + "/app?connect_timeout=50ms")
	require.NoError(t, err)
	c, err := connectorOf(u)
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A server that goes away while a connection to it is made is an outage, whatever the library calls
// that.
func TestConnect_toAServerThatGoesAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	c, err := locker.Open(t.Context(), "mysql://app@"+listener.Addr().String()+"/app?connect_timeout=5s")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	err = c.Mutex("x").TryLock(t.Context())
	require.Error(t, err)
	assert.True(t, noanswer.Outage(err), err)
	assert.True(t, later(errors.New("bad connection")), "which is rare")
}
