package fence_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
)

func TestCheck_refusesZeroAndWhatIsBelowTheNewest(t *testing.T) {
	for _, c := range []struct {
		token, newest uint64
		accepted      bool
	}{
		{1, 0, true}, // the first that is seen
		{7, 6, true},
		{7, 7, true}, // the same holder again
		{math.MaxUint64, math.MaxUint64 - 1, true},
		{math.MaxUint64, math.MaxUint64, true},
		{0, 0, false},
		{0, 7, false},
		{6, 7, false},
		{1, math.MaxUint64, false},
		{math.MaxUint64 - 1, math.MaxUint64, false},
	} {
		err := fence.Check("orders/42", c.token, c.newest)
		if c.accepted {
			require.NoError(t, err, "%d after %d", c.token, c.newest)
			continue
		}
		require.ErrorIs(t, err, fence.ErrStale, "%d after %d", c.token, c.newest)
		var stale *fence.StaleError
		require.ErrorAs(t, err, &stale)
		assert.Equal(t, fence.StaleError{Resource: "orders/42", Token: c.token, Newest: c.newest}, *stale)
	}
}

func TestStaleError_saysWhatWasRefusedAndWhy(t *testing.T) {
	for want, err := range map[string]*fence.StaleError{
		`fence: "a\nb": stale fencing token: 6, the holder of 7 has written`:                              {"a\nb", 6, 7},
		`fence: "x": stale fencing token: 6, a later holder has written, or there is nothing to write to`: {"x", 6, 0},
		`fence: "x": stale fencing token: 0, which is the token of nobody: the lock is not held`:          {"x", 0, 7},
	} {
		require.EqualError(t, err, want)
		wrapped := fmt.Errorf("save: %w", err)
		require.ErrorIs(t, wrapped, fence.ErrStale)
		require.NotErrorIs(t, wrapped, errors.New(fence.ErrStale.Error()))
	}
}
