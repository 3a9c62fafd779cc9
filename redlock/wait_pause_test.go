//go:build unix

package redlock_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/child"
)

func init() { child.Register("waiters", childWaits) }

// childWaits has waiters come, and says when all have had the lock.
func childWaits(t testing.TB) {
	c := unhurriedClient(t, strings.Fields(os.Getenv(childNodes)))
	done := make(chan error)
	for range 3 {
		go func() {
			m := c.Mutex(contested)
			if err := m.Lock(t.Context()); err != nil {
				done <- err
				return
			}
			done <- m.Unlock(t.Context())
		}()
	}
	for range 3 {
		require.NoError(t, <-done)
	}
	fmt.Println("served")
}

// Three waiters of a process that is stopped cost the others one claim, and have their turn when it
// goes on.
func TestWait_aStoppedProcessCostsTheOthersOneClaim(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	c := unhurriedClient(t, q.addrs())
	h := q.held(t, c)
	p := child.Start(t, "waiters", childNodes+"="+strings.Join(q.addrs(), " "))
	q.eventuallyQueueing(t, 3, 0, 1, 2, 3, 4)
	w := &crowd{t: t}
	w.come(t.Context(), c, 5)
	q.eventuallyQueueing(t, 8, 0, 1, 2, 3, 4)
	p.Stop()
	start := time.Now()
	require.NoError(t, h.Unlock(t.Context()))
	w.waitServed()
	took := time.Since(start)
	t.Log("the others have waited", took)
	assert.Less(t, took, 6*time.Second, "three claims of two seconds")
	p.Continue()
	p.Says("served")
	q.eventuallyQueueing(t, 0, 0, 1, 2, 3, 4)
	q.eventuallyFree(t, contested, 0, 1, 2, 3, 4)
}
