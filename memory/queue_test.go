package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/memory"
)

// Who is granted the lock while it waits, and asks a while later, has it for a TTL from then.
func TestQueue_aGrantLastsFromTheRequestThatHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		d := memory.NewDriver(memory.InSpace(t.Name()))
		held, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
		require.NoError(t, err)
		woken := 0
		waits := d.Claim(driver.Request{Name: "x", TTL: ttl, Wake: func() { woken++ }})
		_, err = waits.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		require.NoError(t, held.Release(t.Context()))
		assert.Equal(t, 1, woken)
		time.Sleep(ttl / 2)
		_, err = waits.Ask(t.Context())
		require.NoError(t, err)
		assert.Equal(t, ttl, waits.Validity())
	})
}
