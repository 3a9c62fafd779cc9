// Package playground is a page on which a visitor takes locks, pauses a holder, and sees the
// fencing token refuse its late write. What the page runs is this library, over package memory, as
// WebAssembly: nothing on it is drawn.
//
// `make playground` writes it to dist/playground.html, and the page of package stories beside it.
// The program has two halves: main_js.go is what runs in the page, build.go puts the page together.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/memory"
)

// ttl is short enough to wait for, and long enough to read what happens.
const ttl = 6 * time.Second

// lockName is the lock that all workers take, and the resource that they write.
const lockName = "report"

// play is a lock, a resource, and workers, each of which stands for a process.
type play struct {
	checks bool // whether the resource checks tokens
	guard  fence.Memory

	mu      sync.Mutex
	workers []*worker
	value   string // of the resource
	newest  uint64 // the largest token that has written
	log     []entry
}

// worker is one process. It has a Client of its own.
type worker struct {
	name   string
	client *locker.Client
	hold   *locker.Hold // until its Unlock, also when lost
	waits  bool
	paused chan struct{} // closed when it goes on; nil: it runs
}

// entry is a line of the log.
type entry struct {
	Kind string `json:"kind"` // lock, wait, pause, write, refused, broken or lost
	Text string `json:"text"`
}

func newPlay(checks bool) *play {
	p := &play{checks: checks, value: "empty"}
	for _, name := range []string{"Ada", "Ben", "Cleo"} {
		// The worker renews by itself, because a paused process renews nothing.
		client, err := memory.New(locker.WithTTL(ttl), locker.WithoutRenewal(), locker.WithMetadata(name))
		if err != nil {
			panic(err) // no option is wrong
		}
		p.workers = append(p.workers, &worker{name: name, client: client})
	}
	return p
}

// close ends all workers, and releases what they hold.
func (p *play) close() {
	for _, w := range p.workers {
		_ = w.client.Close()
	}
}

func (p *play) say(kind, format string, args ...any) {
	p.log = append(p.log, entry{kind, fmt.Sprintf(format, args...)})
}

// step has a worker do something. It returns when that is done.
func (p *play) step(ctx context.Context, who, what string) {
	for _, w := range p.workers {
		if w.name != who {
			continue
		}
		switch what {
		case "lock":
			p.lock(ctx, w)
		case "write":
			p.write(ctx, w, true)
		case "pause":
			p.pause(w)
		case "resume":
			p.resume(ctx, w)
		case "unlock":
			p.unlock(ctx, w)
		}
	}
}

func (p *play) lock(ctx context.Context, w *worker) {
	p.mu.Lock()
	if w.hold != nil || w.waits {
		p.mu.Unlock()
		return
	}
	w.waits = true
	p.say("wait", "%s calls Lock.", w.name)
	p.mu.Unlock()

	h, err := w.client.Mutex(lockName).Acquire(ctx)

	p.mu.Lock()
	defer p.mu.Unlock()
	w.waits = false
	if err != nil {
		return // the play was closed
	}
	w.hold = h
	p.say("lock", "%s has the lock, with token %s.", w.name, text(h.Token()))
	go p.renew(w, h)
}

// renew extends the hold each third of a TTL, but while the worker is paused.
func (p *play) renew(w *worker, h *locker.Hold) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for range tick.C {
		p.mu.Lock()
		mine, paused := w.hold == h, w.paused
		p.mu.Unlock()
		if !mine {
			return
		}
		if paused != nil {
			<-paused
			continue
		}
		if errors.Is(h.Extend(context.Background()), locker.ErrLost) {
			return
		}
	}
}

// pause stops the worker right after it has seen that it holds the lock, and before it writes.
func (p *play) pause(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.hold == nil || w.paused != nil || w.hold.Err() != nil {
		return
	}
	w.paused = make(chan struct{})
	p.say("pause", "%s looks: the lock is held. Then its process stops, before it writes.", w.name)
}

// resume has the worker go on: it writes, because it has looked before.
func (p *play) resume(ctx context.Context, w *worker) {
	p.mu.Lock()
	paused := w.paused
	if paused == nil {
		p.mu.Unlock()
		return
	}
	w.paused = nil
	close(paused)
	p.say("pause", "%s wakes up, and writes: it has looked, before the pause.", w.name)
	p.mu.Unlock()
	p.write(ctx, w, false)
}

// write writes to the resource. A worker that looks first does not write after a loss.
func (p *play) write(ctx context.Context, w *worker, looks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := w.hold
	switch {
	case h == nil || w.paused != nil:
		return
	case looks && h.Err() != nil:
		p.say("lost", "%s looks: %v. It does not write.", w.name, h.Err())
		return
	}
	token := h.Token()
	write := func(context.Context) error {
		if token < p.newest {
			p.say("broken", "%s has overwritten what a later holder wrote. Nobody noticed.", w.name)
		} else {
			p.say("write", "%s writes with token %s. The report accepts it.", w.name, text(token))
		}
		p.value, p.newest = "by "+w.name, max(p.newest, token)
		return nil
	}
	var err error
	if p.checks {
		err = p.guard.Write(ctx, lockName, token, write)
	} else {
		err = write(ctx)
	}
	if err != nil {
		p.say("refused", "The report REFUSES what %s writes: token %s is below %s.", w.name, text(token), text(p.newest))
	}
	if h.Err() != nil {
		p.say("lost", "%s learns: %v.", w.name, h.Err())
	}
}

func (p *play) unlock(ctx context.Context, w *worker) {
	p.mu.Lock()
	h := w.hold
	if h == nil || w.paused != nil {
		p.mu.Unlock()
		return
	}
	w.hold = nil
	p.mu.Unlock()

	err := h.Unlock(ctx)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.say("lost", "%s calls Unlock: %v.", w.name, err)
	} else {
		p.say("lock", "%s calls Unlock. The lock is free, or the next waiter's.", w.name)
	}
}

// view is what the page shows.
type view struct {
	TTL     float64      `json:"ttl"` // seconds, as all times
	Checks  bool         `json:"checks"`
	Holder  string       `json:"holder"` // as the backend has it; empty: nobody
	Token   string       `json:"token"`  // of the holder
	Left    float64      `json:"left"`   // until the hold expires
	Waiters []string     `json:"waiters"`
	Value   string       `json:"value"`
	Newest  string       `json:"newest"` // the largest token that has written
	Workers []workerView `json:"workers"`
	Log     []entry      `json:"log"`
}

type workerView struct {
	Name  string `json:"name"`
	State string `json:"state"` // idle, waits, holds, paused or lost
	Token string `json:"token"`
}

// look returns what there is to show.
func (p *play) look() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := view{TTL: ttl.Seconds(), Checks: p.checks, Value: p.value, Newest: text(p.newest), Waiters: []string{}, Log: p.log}
	if s, err := p.workers[0].client.Inspect(context.Background(), lockName); err == nil && s.Held {
		v.Holder, v.Token, v.Left = s.Holder.Metadata, text(s.Token), s.Left.Seconds()
		for _, w := range s.Waiters {
			v.Waiters = append(v.Waiters, w.Metadata)
		}
	}
	for _, w := range p.workers {
		one := workerView{Name: w.name, State: "idle"}
		switch {
		case w.waits:
			one.State = "waits"
		case w.paused != nil: // it does not know whether it still has the lock
			one.State, one.Token = "paused", text(w.hold.Token())
		case w.hold != nil && w.hold.Err() != nil:
			one.State = "lost"
		case w.hold != nil:
			one.State, one.Token = "holds", text(w.hold.Token())
		}
		v.Workers = append(v.Workers, one)
	}
	return v
}

// text is a token in full: package memory counts up from the time in microseconds, so that any few
// of its last digits begin anew within a short time.
func text(token uint64) string {
	if token == 0 {
		return "none"
	}
	return strconv.FormatUint(token, 10)
}
