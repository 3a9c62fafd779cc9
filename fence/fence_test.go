package fence_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestMark_isOfOneHolderOfOneLock(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a#1", "a#", "#", "1", "a1"} {
		for _, token := range []uint64{1, 2, 11, 1<<64 - 1} {
			m, err := fence.Mark(name, token)
			require.NoError(t, err)
			of := fmt.Sprintf("%q %d", name, token)
			assert.Empty(t, seen[m], "%s has the mark of %s", of, seen[m])
			seen[m] = of
		}
	}
	_, err := fence.Mark("a", 0)
	require.ErrorIs(t, err, fence.ErrStale)
}

func ExampleMark() {
	m, err := fence.Mark("orders/42", 34)
	fmt.Println(m, err)
	_, err = fence.Mark("orders/42", 0)
	fmt.Println(err)
	// In SQL, where orders have a column for it:
	//
	//	UPDATE orders SET mark = 'orders/42#34' WHERE id = 42
	//	SELECT … FROM orders WHERE id = 42
	//	UPDATE orders SET … WHERE id = 42 AND mark = 'orders/42#34' -- no row: ErrMarkGone

	// Output:
	// orders/42#34 <nil>
	// fence: "orders/42": stale fencing token: 0, which is the token of nobody: the lock is not held
}
