package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Drain is how long it takes until each of those who ask at the same moment has held the lock once.
type Drain struct {
	Library    string       `json:"library"`
	Round      int          `json:"round"`
	Contenders int          `json:"contenders"`
	Seconds    float64      `json:"seconds"`
	Held       float64      `json:"heldSeconds"` // of those, somebody held it
	Load       servers.Load `json:"load"`
	Overlaps   int64        `json:"overlaps"`
	Error      string       `json:"error,omitempty"`
}

const (
	// drainHold is how long each holds it.
	drainHold = 5 * time.Millisecond
	// drainLimit is after how long those who still wait are given up: rueidislock's may wait for ever.
	drainLimit = 30 * time.Second
)

// ratio is to what it would take if the lock cost nothing.
func (d *Drain) ratio() float64 { return d.Seconds / (float64(d.Contenders) * drainHold.Seconds()) }

func measureDrain(ctx context.Context, on *servers.Servers, l contend.Library, round int, o *options) (Drain, error) {
	d := Drain{Library: l.Name, Round: round, Contenders: o.drain}
	name := l.LockName("drain", round)
	sent := wire.NewTally()
	clients, closeAll, err := l.OpenClients(min(o.drain, slices.Max(o.clients)), on.Addrs, sent)
	if err != nil {
		return d, err
	}
	defer closeAll()
	limited, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for i, c := range clients { // connections and scripts
		unlock, err := c.Waiter(fmt.Sprintf("%s-first-%d", name, i))(limited)
		if err == nil {
			err = contend.Release(limited, unlock)
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", name, err)
		}
	}
	var sec contend.Section
	var mu sync.Mutex
	var held time.Duration
	var first error
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range d.Contenders {
		lock := clients[i%len(clients)].Waiter(name)
		wg.Go(func() {
			<-begin
			unlock, err := lock(limited)
			if err == nil {
				start := time.Now()
				sec.Enter()
				time.Sleep(drainHold)
				sec.Leave()
				mu.Lock()
				held += time.Since(start)
				mu.Unlock()
				err = contend.Release(limited, unlock)
			}
			if err != nil {
				mu.Lock()
				first = errors.Join(first, err)
				mu.Unlock()
			}
		})
	}
	d.Load, err = on.During(ctx, sent, func() error {
		close(begin)
		wg.Wait()
		return nil
	})
	d.Seconds, d.Held, d.Overlaps = d.Load.Seconds, held.Seconds(), sec.Overlaps()
	if first != nil {
		d.Error = first.Error()
	}
	return d, err
}
