package fence_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/fence"
)

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
