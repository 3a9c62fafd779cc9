package expiry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/conformance/internal/party"
)

// A cut has to show.
func TestUneven(t *testing.T) {
	for _, shortest := range []time.Duration{
		10 * time.Millisecond, 250 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 999 * time.Millisecond,
		time.Second, 1500 * time.Millisecond, 2 * time.Second, 4 * time.Second, 10 * time.Second,
	} {
		ttl := uneven(shortest)
		assert.Greater(t, ttl, shortest)
		assert.Less(t, ttl, 3*max(shortest, time.Second), "of %v: it takes long", shortest)
		seconds := ttl % time.Second
		assert.Greater(t, seconds, party.Drift(ttl)+100*time.Millisecond, "of %v: %v cut to seconds", shortest, ttl)
		assert.Less(t, seconds, time.Second/2, "of %v: %v rounded to seconds", shortest, ttl)
		assert.Equal(t, 85*time.Millisecond, ttl%(100*time.Millisecond), "of %v: %v cut to tenths", shortest, ttl)
		if shortest >= 250*time.Millisecond {
			assert.Greater(t, ttl%shortest, party.Drift(ttl)+100*time.Millisecond, "of %v: %v cut to multiples of it", shortest, ttl)
		}
	}
}
