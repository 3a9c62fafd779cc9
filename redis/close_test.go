package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// wantNothingToCleanUp fails a Lock, and then wants a Close that has nothing to wait for: a request that
// never had a connection has taken nothing.
func wantNothingToCleanUp(ctx context.Context, t *testing.T, c *locker.Client) {
	t.Helper()
	require.Error(t, c.Mutex("x").Lock(ctx))
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), 3*time.Second, "Close waits for nothing, and not for a release")
}

func TestClose_afterAConnectionThatWasRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for name, kind := range clients {
		t.Run(name+", an answer", func(t *testing.T) {
			c := clientOf(t, connect(t, s.Addr(), kind, func(o *goredis.Options) { o.DialerRetries = 1 }))
			wantNothingToCleanUp(context.Background(), t, c)
		})
		t.Run(name+", ctx ends", func(t *testing.T) {
			c := clientOf(t, connect(t, s.Addr(), kind))
			wantNothingToCleanUp(withTimeout(t, 20*time.Millisecond), t, c)
		})
	}
}

func TestClose_afterATLSHandshakeThatFailed(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisTLS())
	for name, query := range map[string]string{
		"an unknown authority":     "",
		"another name":             "?tls_ca=" + s.CAFile + "&tls_server_name=elsewhere.example",
		"no certificate of theirs": "?tls_ca=" + s.CAFile,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := locker.Open(t.Context(), s.URL()+query)
			require.NoError(t, err)
			wantNothingToCleanUp(context.Background(), t, c)
		})
	}
}
