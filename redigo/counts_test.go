package redigo_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

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
