package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func warningsOf(t testing.TB, c *locker.Client) string {
	t.Helper()
	warnings, err := c.Warnings(t.Context())
	require.NoError(t, err)
	return fmt.Sprint(warnings)
}

// Settings by which a crash loses what is logged are warned of.
func TestWarnings_ofSettingsThatLoseWhatIsLogged(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := newClient(t, s.URL())
	said := warningsOf(t, c)
	assert.Contains(t, said, "fsync=off")
	assert.NotContains(t, said, "full_page_writes")
	assert.NotContains(t, said, "notifications")
}

// A server that is restored from a backup has forgotten holds and tokens: tokens go on by the
// clock.
func TestRestore_tokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	lock := func() uint64 {
		m := newClient(t, s.URL(), locker.WithTTL(2*time.Second)).Mutex("x")
		require.NoError(t, m.Lock(withTimeout(t, 20*time.Second)), "a release may be lost in a crash")
		defer func() { require.NoError(t, m.Unlock(t.Context())) }()
		return m.FencingToken()
	}
	lock()
	restore := s.Backup()
	last := uint64(0)
	for range 20 {
		last = lock()
	}
	restore()
	assert.Greater(t, lock(), last)
}
