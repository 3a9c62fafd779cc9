package redisscript

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/claims"
)

// leasesOf are of a Driver whose extensions are answered as answer says.
func leasesOf(t *testing.T, n int, answer func(owner any) (any, error)) (*Driver, *fakeRunner, []driver.Lease) {
	t.Helper()
	r := &fakeRunner{answer: func(s *script.Script, args []any) (any, error) {
		if s == script.Take {
			return []any{int64(script.Granted), int64(7), nowMicro(), int64(0)}, nil
		}
		return answer(argument(s, args, "owner"))
	}}
	d := NewDriver(r)
	t.Cleanup(func() { require.NoError(t, d.Close(noClient)) })
	leases := make([]driver.Lease, n)
	for i := range leases {
		var err error
		leases[i], err = claims.Take(t.Context(), d, forOneSecond)
		require.NoError(t, err)
	}
	r.sent, r.batches = nil, nil
	return d, r, leases
}

func TestExtendAll_isAScriptForEachLockAndAPipelineForMany(t *testing.T) {
	const n = 2*mostExtensions + 1
	d, r, leases := leasesOf(t, n, func(any) (any, error) { return int64(1), nil })
	for i, err := range d.ExtendAll(t.Context(), leases, time.Hour) {
		require.NoError(t, err, i)
		require.Greater(t, leases[i].Validity(), 59*time.Minute)
	}
	assert.Equal(t, []int{mostExtensions, mostExtensions, 1}, r.batches)
	for i, args := range r.sent {
		require.Equal(t, []any{leases[i].(*claim).Owner, script.Expiry(time.Hour)}, args)
	}
	assert.Empty(t, d.ExtendAll(t.Context(), nil, time.Hour))
}

func TestExtendAll_eachLockHasItsOwnOutcome(t *testing.T) {
	boom := errors.New("WRONGTYPE")
	outcomes := map[any]struct {
		reply any
		err   error
	}{}
	d, r, leases := leasesOf(t, 3, func(owner any) (any, error) { return outcomes[owner].reply, outcomes[owner].err })
	for i, l := range leases {
		o := outcomes[l.(*claim).Owner]
		switch i {
		case 0:
			o.reply = int64(1)
		case 1:
			o.reply = int64(0)
		case 2:
			o.err = boom
		}
		outcomes[l.(*claim).Owner] = o
	}
	errs := d.ExtendAll(t.Context(), leases, time.Minute)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], locker.ErrLost)
	require.ErrorIs(t, errs[2], boom)
	assert.Equal(t, []int{3}, r.batches)
	assert.Greater(t, leases[0].Validity(), 59*time.Second)
	assert.LessOrEqual(t, leases[1].Validity(), time.Second)
	assert.LessOrEqual(t, leases[2].Validity(), time.Second)
}

// Which script extends a lease is decided by what it is, also among others.
func TestExtendAll_ofShares(t *testing.T) {
	scripts := map[*script.Script]int{}
	d := NewDriver(&fakeRunner{answer: func(s *script.Script, _ []any) (any, error) {
		if scripts[s]++; s.Takes {
			return grantedReply(), nil
		}
		return int64(1), nil
	}})
	defer func() { require.NoError(t, d.Close(noClient)) }()
	var leases []driver.Lease
	for _, shared := range []bool{true, false} {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: time.Second, Shared: shared})
		require.NoError(t, err)
		leases = append(leases, l)
	}
	clear(scripts)
	require.Equal(t, []error{nil, nil}, d.ExtendAll(t.Context(), leases, time.Second))
	assert.Equal(t, map[*script.Script]int{script.Extend: 1, script.ExtendShared: 1}, scripts)
}
