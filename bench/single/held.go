package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redislocks"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
)

const (
	renewalsPerTTL = 3 // this library's, and by default rueidislock's
	takers         = 64
	lookEvery      = 100 * time.Millisecond
)

// Held is what it costs to hold locks.
type Held struct {
	Library    string       `json:"library"`
	Locks      int          `json:"locks"`
	Load       servers.Load `json:"load"`
	Goroutines int          `json:"goroutines"` // that came with the locks
	HeapBytes  int64        `json:"heapBytes"`  // the same
	Oldest     float64      `json:"oldest"`     // since a lock was taken or renewed, in parts of the TTL; 0: not known
	Lost       int          `json:"lost"`
}

// each is the part of 100 locks and one renewal.
func (h *Held) each(total float64) float64 {
	renewals := h.Load.Seconds / (redislocks.TTL.Seconds() / renewalsPerTTL)
	return total / renewals / (float64(h.Locks) / 100)
}

func (o *options) measureHeld(ctx context.Context, on *servers.Servers, progress io.Writer) ([]Held, error) {
	var all []Held
	for _, n := range o.held {
		for _, l := range o.Libraries {
			most := redislocks.Renews[l.Name]
			if n > most {
				continue // it does not renew, or has goroutines for each lock
			}
			h := Held{Library: l.Name, Locks: n}
			if err := o.hold(ctx, on, l, &h); err != nil {
				return nil, fmt.Errorf("%d locks of %s: %w", n, l.Name, err)
			}
			fmt.Fprintf(progress, "%d locks held, %s: %.2f commands for 100 locks\n", n, l.Name, h.each(float64(h.Load.Sent)))
			all = append(all, h)
		}
	}
	return all, nil
}

// hold takes h.Locks locks, and looks at them for a while.
func (o *options) hold(ctx context.Context, on *servers.Servers, l contend.Library, h *Held) (err error) {
	sent := wire.NewTally()
	client, err := l.Connect(on.Addrs, sent)
	if err != nil {
		return err
	}
	defer client.Close()
	warm, err := client.Waiter("first")(ctx) // connections and scripts
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, contend.Release(ctx, warm)) }()
	holds := make([]contend.UnlockFunc, h.Locks)
	lefts := make([]func() time.Duration, h.Locks)
	heap, goroutines := settled()
	if err := takeAll(ctx, client, holds, lefts); err != nil {
		return err
	}
	if !contend.Sleep(ctx, o.settling) {
		return context.Cause(ctx)
	}
	heapAfter, goroutinesAfter := settled()
	h.HeapBytes, h.Goroutines = heapAfter-heap, goroutinesAfter-goroutines

	h.Load, err = on.During(ctx, sent, func() error {
		for end := time.Now().Add(o.window); time.Now().Before(end); {
			h.look(lefts)
			if !contend.Sleep(ctx, lookEvery) {
				return context.Cause(ctx)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return h.release(ctx, holds)
}

// settled is what is in use once nothing goes on.
func settled() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc), runtime.NumGoroutine()
}

func inParallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for worker := range takers {
		wg.Go(func() {
			for i := worker; i < n; i += takers {
				if err := do(i); err != nil {
					mu.Lock()
					first = errors.Join(first, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

func takeAll(ctx context.Context, client *contend.Client, holds []contend.UnlockFunc, lefts []func() time.Duration) error {
	return inParallel(len(holds), func(i int) (err error) {
		name := fmt.Sprintf("held-%d", i)
		if client.Hold != nil {
			holds[i], lefts[i], err = client.Hold(ctx, name)
			return err
		}
		holds[i], err = client.Waiter(name)(ctx)
		return err
	})
}

// look notes how long ago the oldest renewal was.
func (h *Held) look(lefts []func() time.Duration) {
	for _, left := range lefts {
		if left != nil {
			h.Oldest = max(h.Oldest, 1-left().Seconds()/redislocks.TTL.Seconds())
		}
	}
}

// release counts those that were lost.
func (h *Held) release(ctx context.Context, holds []contend.UnlockFunc) error {
	var mu sync.Mutex
	return inParallel(len(holds), func(i int) error {
		if err := contend.Release(ctx, holds[i]); err != nil {
			mu.Lock()
			h.Lost++
			mu.Unlock()
		}
		return nil
	})
}
