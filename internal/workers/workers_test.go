package workers_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/workers"
)

func TestDo_neverWaitsForAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workers.New(2)
		release := make(chan struct{})
		var began sync.WaitGroup
		for range 10 {
			began.Add(1)
			w.Do(workers.Func(func() { began.Done(); <-release }))
		}
		began.Wait()
		assert.Zero(t, w.Idle())
		close(release)
		synctest.Wait()
		assert.Equal(t, 2, w.Idle(), "the others have ended")
		w.Close()
		w.Close()
	})
}

func TestDo_usesAGoroutineAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workers.New(1)
		defer w.Close()
		ids := map[string]bool{}
		for range 5 {
			w.Do(workers.Func(func() {
				var stack [64]byte // begins with goroutine N [
				n := runtime.Stack(stack[:], false)
				ids[string(stack[:min(n, 16)])] = true
			}))
			synctest.Wait()
		}
		assert.Len(t, ids, 1)
	})
}

func TestClose_waitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workers.New(1)
		done, closed := make(chan struct{}), make(chan struct{})
		w.Do(workers.Func(func() { <-done }))
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
