package redisscript

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// leasesOf are of a Driver whose extensions are answered as answer says.
func leasesOf(t *testing.T, n int, answer func(owners []any) (any, error)) (*Driver, *fakeRunner, []locker.Lease) {
	t.Helper()
	r := &fakeRunner{answer: func(s *Script, args []any) (any, error) {
		if s == acquire {
			return []any{int64(granted), int64(7), nowMicro()}, nil
		}
		return answer(args[1:])
	}}
	d := NewDriver(r)
	leases := make([]locker.Lease, n)
	for i := range leases {
		var err error
		leases[i], err = d.Acquire(t.Context(), request)
		require.NoError(t, err)
	}
	r.sent = nil
	return d, r, leases
}

// all is the reply for locks that are all extended.
func all(n int) []any {
	replies := make([]any, 1+n)
	for i := range replies {
		replies[i] = int64(1)
	}
	return replies
}

func TestExtendAll_oneScriptForManyLocks(t *testing.T) {
	const n = 2*together + 1
	d, r, leases := leasesOf(t, n, func(owners []any) (any, error) {
		if len(owners) == 1 {
			return int64(1), nil
		}
		return all(len(owners)), nil
	})
	for i, err := range d.ExtendAll(t.Context(), leases, time.Hour) {
		require.NoError(t, err, i)
		assert.Greater(t, leases[i].Validity(), 59*time.Minute)
	}
	require.Len(t, r.sent, 3)
	assert.Len(t, r.sent[0], 1+together)
	assert.Len(t, r.sent[2], 2, "the last is alone")
}

func TestExtendAll_eachLockHasItsOwnOutcome(t *testing.T) {
	boom := errors.New("WRONGTYPE")
	var odd any
	d, r, leases := leasesOf(t, 3, func(owners []any) (any, error) {
		if len(owners) == 1 {
			assert.Equal(t, odd, owners[0])
			return nil, boom
		}
		return []any{int64(1), int64(1), int64(0), int64(-1)}, nil
	})
	odd = leases[2].(*lease).owner
	errs := d.ExtendAll(t.Context(), leases, time.Minute)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], locker.ErrLost)
	require.ErrorIs(t, errs[2], boom)
	assert.Len(t, r.sent, 2, "the third is asked about alone")
	assert.Greater(t, leases[0].Validity(), 59*time.Second)
	assert.LessOrEqual(t, leases[1].Validity(), time.Second)
	assert.LessOrEqual(t, leases[2].Validity(), time.Second)
}

func TestExtendAll_otherRepliesAreNoSuccess(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "1", []any{}, all(1), all(3), []any{int64(1), "1", nil}} {
		d, _, leases := leasesOf(t, 2, func([]any) (any, error) { return reply, nil })
		for i, err := range d.ExtendAll(t.Context(), leases, time.Minute) {
			require.Error(t, err, "%v: lease %d", reply, i)
			require.NotErrorIs(t, err, locker.ErrLost)
			assert.LessOrEqual(t, leases[i].Validity(), time.Second)
		}
	}
}

// A client of one server may be one of a Redis Cluster's, or of a proxy before it.
func TestExtendAll_whereNamesAreOnDifferentSlots(t *testing.T) {
	d, r, leases := leasesOf(t, 3, func(owners []any) (any, error) {
		if len(owners) > 1 {
			return nil, errors.New("CROSSSLOT Keys in request don't hash to the same slot")
		}
		return int64(1), nil
	})
	for range 2 {
		for i, err := range d.ExtendAll(t.Context(), leases, time.Minute) {
			require.NoError(t, err, i)
		}
	}
	assert.Len(t, r.sent, 1+3+3, "the second time it is known")
}
