package fencecheck

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/fence"
)

// Disturbed has several writers write, with tokens that rise, while disturb is called so many times, each when some more
// writes have been acknowledged. What other error than a refusal a write returns does not matter: its outcome is not known, and it may
// have been made, and be it twice. No write comes after a newer one, and none that was acknowledged is missing.
func Disturbed(ctx context.Context, f Fence, times int, disturb func()) error {
	d := disturbed{fence: f}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	var all sync.WaitGroup
	const writers = 4
	for range writers {
		all.Go(func() { d.write(ctx, stop) })
	}
	err := d.more()
	for ; times > 0 && err == nil; times-- {
		disturb()
		err = d.more()
	}
	close(stop)
	if err != nil {
		cancel()
	}
	all.Wait()
	if err != nil {
		return err
	}
	return d.check(ctx)
}

type disturbed struct {
	fence Fence
	last  atomic.Uint64 // token

	mu           sync.Mutex
	acknowledged []uint64
}

func (d *disturbed) write(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		token := d.last.Add(1)
		switch err := d.fence.Write(ctx, token); {
		case err == nil:
			d.mu.Lock()
			d.acknowledged = append(d.acknowledged, token)
			d.mu.Unlock()
		case !errors.Is(err, fence.ErrStale):
			time.Sleep(time.Millisecond)
		}
	}
}

func (d *disturbed) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.acknowledged)
}

// more returns when some more writes have been acknowledged.
func (d *disturbed) more() error {
	const some, patience = 20, time.Minute
	for enough, late := d.count()+some, time.After(patience); d.count() < enough; {
		select {
		case <-late:
			return fmt.Errorf("no %d writes were acknowledged within %v", some, patience)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (d *disturbed) check(ctx context.Context) error {
	history, err := d.fence.History(ctx)
	if err != nil {
		return err
	}
	if err := Rising(history); err != nil {
		return err
	}
	made := map[uint64]bool{}
	for _, token := range history {
		made[token] = true
	}
	for _, token := range d.acknowledged {
		if !made[token] {
			return fmt.Errorf("the write of %d was acknowledged, and was not made: %d", token, history)
		}
	}
	return nil
}
