package redigo_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestCounts_eachOperationIsOneScriptInOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	loadScripts(t, s)
	var roundTrips atomic.Int64
	c := clientOf(t, newPool(t, s.Addr(), countRoundTrips(s.Addr(), &roundTrips)), locker.WithoutRenewal())
	m, other := c.Mutex("x"), c.Mutex("x")
	ctx := t.Context()
	warm(t, c)
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"Lock", func() error { return m.Lock(ctx) }, nil},
		{"TryLock of a held lock", func() error { return other.TryLock(ctx) }, locker.ErrHeld},
		{"Extend", func() error { return m.Extend(ctx) }, nil},
		{"Unlock", func() error { return m.Unlock(ctx) }, nil},
		{"TryLock of a free lock", func() error { return other.TryLock(ctx) }, nil},
	} {
		ask(t, s, "CONFIG", "RESETSTAT")
		roundTrips.Store(0)
		require.ErrorIs(t, step.do(), step.want, step.name)
		assert.EqualValues(t, 1, roundTrips.Load(), "%s: round trips", step.name)
		assert.Equal(t, 1, calls(t, s, "evalsha"), "%s: scripts by SHA", step.name)
		assert.Zero(t, calls(t, s, "eval"), "%s: scripts by source", step.name)
	}
}

func TestCounts_aBatchIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	loadScripts(t, s)
	var roundTrips atomic.Int64
	d := driverOf(t, newPool(t, s.Addr(), countRoundTrips(s.Addr(), &roundTrips)))
	leases := make([]driver.Lease, 10) // which fit into a buffer of redigo, the script too
	for i := range leases {
		leases[i] = take(t, d, fmt.Sprint(i), time.Minute)
	}
	extendAll := func() {
		t.Helper()
		roundTrips.Store(0)
		for i, err := range d.ExtendAll(t.Context(), leases, 2*time.Minute) {
			require.NoError(t, err, "lease %d", i)
		}
	}
	extendAll()
	assert.EqualValues(t, 1, roundTrips.Load())
	ask(t, s, "SCRIPT", "FLUSH")
	extendAll()
	assert.EqualValues(t, 2, roundTrips.Load(), "the pipeline that was refused, and one that brings the script")
}
