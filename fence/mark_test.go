package fence_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
)

// register is a resource that can only compare for equality.
type register struct {
	mu          sync.Mutex
	mark, value string
}

func (r *register) put(mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark = mark
}

func (r *register) get() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

func (r *register) write(mark, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mark != mark {
		return fence.ErrMarkGone
	}
	r.value = value
	return nil
}

func mark(t *testing.T, token uint64) string {
	t.Helper()
	m, err := fence.Mark(resource, token)
	require.NoError(t, err)
	return m
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

// Among many who mark, read and write, as if there were no lock at all, no write is lost.
func TestMark_losesNoWriteBetweenMarkAndWrite(t *testing.T) {
	var r register
	const holders, each = 8, 50
	var all sync.WaitGroup
	for h := range uint64(holders) {
		all.Go(func() {
			for done, token := 0, h+1; done < each; token += holders {
				m := mark(t, token)
				r.put(m)
				if r.write(m, r.get()+"x") == nil {
					done++
				}
			}
		})
	}
	all.Wait()
	assert.Len(t, r.get(), holders*each)
}

// What it does not give, one by one. A fence refuses the paused holder in each of these.
func TestMark_isLessThanAFence(t *testing.T) {
	paused, next := mark(t, 33), mark(t, 34)

	t.Run("the order of holders is not kept", func(t *testing.T) {
		var r register
		r.put(next)
		r.put(paused) // wakes up here
		require.ErrorIs(t, r.write(next, "of the holder"), fence.ErrMarkGone, "who holds the lock is refused")
		require.NoError(t, r.write(paused, "of the one who lost it"))
		require.ErrorIs(t, fence.Check(resource, 33, 34), fence.ErrStale)
	})
	t.Run("what was read before the mark may be out of date", func(t *testing.T) {
		var r register
		read := r.get() // and is paused
		r.put(next)
		require.NoError(t, r.write(next, read+"n"))
		r.put(paused)
		require.NoError(t, r.write(paused, read+"p"))
		assert.Equal(t, "p", r.get(), "the update of the next one is lost")
	})
	t.Run("two resources are not one step", func(t *testing.T) {
		var a, b register
		a.put(paused)
		b.put(paused)
		require.NoError(t, a.write(paused, "of the first"))
		a.put(next)
		b.put(next)
		require.ErrorIs(t, b.write(paused, "of the first"), fence.ErrMarkGone)
		assert.Equal(t, []string{"of the first", ""}, []string{a.get(), b.get()}, "half of it is done")
	})
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
