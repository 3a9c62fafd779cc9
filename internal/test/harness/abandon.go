package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"

	"github.com/go-locker/locker/internal/test/testwait"
)

// Abandon tests that a hold which was abandoned keeps others away until its deadline, and no longer than a TTL or so, whatever becomes of its
// Client. url ends with a query.
func Abandon(t *testing.T, url string, ttl time.Duration) {
	for name, c := range map[string]struct {
		opts []locker.Option
		end  func(*testing.T, *locker.Client, *locker.Hold)
	}{
		"Abandon, and the Client goes on": {end: func(t *testing.T, _ *locker.Client, h *locker.Hold) {
			t.Helper()
			require.NoError(t, h.Abandon())
		}},
		"Abandon and Close": {end: func(t *testing.T, c *locker.Client, h *locker.Hold) {
			t.Helper()
			require.NoError(t, h.Abandon())
			require.NoError(t, c.Close())
		}},
		"AtLeast, Unlock and Close": {
			opts: []locker.Option{locker.AtLeast(ttl * 9 / 10)},
			end: func(t *testing.T, c *locker.Client, h *locker.Hold) {
				t.Helper()
				require.NoError(t, h.Unlock(t.Context()))
				require.NoError(t, c.Close())
			},
		},
		"WithoutRelease and Close": {
			opts: []locker.Option{locker.WithoutRelease()},
			end: func(t *testing.T, c *locker.Client, _ *locker.Hold) {
				t.Helper()
				require.NoError(t, c.Close())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func(opts ...locker.Option) *locker.Client {
				return testwait.Closed(locker.Open(t.Context(), url, append(opts, locker.WithTTL(ttl))...))(t)
			}
			client, other := open(c.opts...), open()
			h, err := client.Mutex(t.Name()).Acquire(t.Context())
			require.NoError(t, err)
			released, err := client.Mutex(t.Name() + " released").Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, released.Unlock(t.Context()))
			c.end(t, client, h)
			ended, deadline := time.Now(), h.Deadline()
			next, err := other.Mutex(t.Name()).Acquire(t.Context())
			require.NoError(t, err)
			assert.False(t, time.Now().Before(deadline), "another got it %v before the deadline", time.Until(deadline))
			assert.Less(t, time.Since(ended), ttl+patient/2, "it expires by itself")
			assert.Greater(t, next.Token(), h.Token())
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}
