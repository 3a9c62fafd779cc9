package fencecheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/fence"
)

// Disturbed has several writers write, with tokens that rise, while disturb is called so many times, each when some more
// writes have been acknowledged. What other error than a refusal a write returns does not matter: its outcome is not known, and it may
// have been made, and be it twice. No write comes after a newer one, and none that was acknowledged is missing.
func Disturbed(ctx context.Context, f Fence, times int, disturb func()) error {
	w := writers{fence: f}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop atomic.Bool
	const count = 4
	for range count {
		w.all.Go(func() {
			for !stop.Load() {
				if !w.write(ctx, func() {}) {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	err := w.more()
	for ; times > 0 && err == nil; times-- {
		disturb()
		err = w.more()
	}
	stop.Store(true)
	if err != nil {
		cancel()
	}
	w.all.Wait()
	if err != nil {
		return err
	}
	_, err = w.check(ctx)
	return err
}

// writers write to one fence, and keep what becomes of each write.
type writers struct {
	fence Fence
	all   sync.WaitGroup
	last  atomic.Uint64 // token

	mu      sync.Mutex // guards:
	made    []uint64   // tokens of writes that were acknowledged
	refused int
	failed  error // what else was answered
}

// write makes a write by the next token, after a pause. It reports whether it was answered.
func (w *writers) write(ctx context.Context, pause func()) (answered bool) {
	token := w.last.Add(1)
	pause()
	err := w.fence.Write(ctx, token)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.made = append(w.made, token)
	case errors.Is(err, fence.ErrStale):
		w.refused++
	default:
		w.failed = err
		return false
	}
	return true
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.made)
}

// more returns when some more writes have been acknowledged.
func (w *writers) more() error {
	const some, patience = 20, time.Minute
	for enough, late := w.count()+some, time.After(patience); w.count() < enough; {
		select {
		case <-late:
			return fmt.Errorf("no %d writes were acknowledged within %v", some, patience)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// check returns the history, in which no write is after a newer one, and none is missing.
func (w *writers) check(ctx context.Context) ([]uint64, error) {
	history, err := w.fence.History(ctx)
	if err != nil {
		return nil, err
	}
	if err := Rising(history); err != nil {
		return nil, err
	}
	for _, token := range w.made {
		if _, made := slices.BinarySearch(history, token); !made {
			return nil, fmt.Errorf("the write of %d was acknowledged, and was not made: %d", token, history)
		}
	}
	return history, nil
}
