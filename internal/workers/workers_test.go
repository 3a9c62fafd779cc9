package workers

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (w *Workers) idlers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

func TestDo_neverWaitsForAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(2)
		release := make(chan struct{})
		var began sync.WaitGroup
		for range 10 {
			began.Add(1)
			w.Do(Func(func() { began.Done(); <-release }))
		}
		began.Wait()
		assert.Zero(t, w.idlers())
		close(release)
		synctest.Wait()
		assert.Equal(t, 2, w.idlers(), "the others have ended")
		w.Close()
		w.Close()
	})
}

func TestDo_usesAGoroutineAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(1)
		defer w.Close()
		ids := map[string]bool{}
		for range 5 {
			w.Do(Func(func() {
				var stack [64]byte // begins with goroutine N [
				n := runtime.Stack(stack[:], false)
				ids[string(stack[:min(n, 16)])] = true
			}))
			synctest.Wait()
		}
		assert.Len(t, ids, 1)
	})
}

// A burst leaves nothing behind, though nobody closes the Workers, and though calls go on that few workers can make.
func TestDo_whoIsIdleForAWhileEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 80
		w := New(burst)
		for range burst {
			w.Do(Func(func() { time.Sleep(time.Second) }))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, burst, w.idlers())
		for range 300 { // ten a second, of which each takes a fifth of that
			w.Do(Func(func() { time.Sleep(200 * time.Millisecond) }))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.LessOrEqual(t, w.idlers(), 3, "idle, of which two or three are needed")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, w.idlers())
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		assert.NotContains(t, string(stacks), "(*Workers).work(", "goroutines that are left")
		done := false
		w.Do(Func(func() { done = true }))
		synctest.Wait()
		assert.True(t, done, "another is made")
		w.Close()
	})
}

func TestClose_waitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(1)
		done, closed := make(chan struct{}), make(chan struct{})
		w.Do(Func(func() { <-done }))
		go func() { w.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before its call was made")
		default:
		}
		close(done)
		<-closed
	})
}
