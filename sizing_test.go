package locker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What docs/safety.md has people size TTLs by: whatever keeps the backend from being reached for two fifths of a TTL costs
// no hold, at whatever moment between two renewals it begins. At the worst a sixth of the TTL is left.
func TestRenewal_outlivesAnOutageOfTwoFifthsOfTheTTLWheneverItBegins(t *testing.T) {
	const steps = 20
	for name, f := range map[string]fault{
		"refuses": unreachable, "hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "does it, but every reply is lost": unheard,
	} {
		for i := range steps {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *backend) {
					m := b.locked(t, "x")
					token := m.FencingToken()
					time.Sleep(ttl + ttl/3*time.Duration(i)/steps)
					b.down(f)
					least := ttl
					for over := time.Now().Add(2 * ttl); time.Now().Before(over); time.Sleep(ttl / 100) {
						if time.Until(over) <= 2*ttl-2*ttl/5 {
							b.down(fault{})
						}
						least = min(least, time.Until(m.Deadline()))
						require.Equal(t, token, m.FencingToken())
					}
					assert.GreaterOrEqual(t, least, ttl/6)
				})
			})
		}
	}
}

// The other side of it: one that is longer than two thirds of the TTL may cost the hold, if it begins just before a renewal.
func TestRenewal_doesNotOutliveAnOutageOfSevenTenthsOfTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		time.Sleep(ttl/3 - ttl/24) // just before the first renewal is due
		b.down(unreachable)
		time.Sleep(7 * ttl / 10)
		b.down(fault{})
		time.Sleep(ttl / 24)
		assert.True(t, fired(m.Lost()))
		assert.Zero(t, m.FencingToken())
	})
}
