package simulation

import (
	"context"
	"errors"
	"time"
)

var (
	errRefused = errors.New("connection refused")
	errBroken  = errors.New("connection broken")
)

// window is a time in which something is wrong.
type window struct {
	from, to time.Duration // since the beginning
	process  int           // whose network it is; -1: the server is silent, for everybody
	what     wrong
}

type wrong int

const (
	silent   wrong = iota // what is sent arrives when it is over
	cutOff                // what is sent is lost
	deaf                  // requests arrive, replies are lost
	crashing              // the server is down, and keeps its data
	changing              // it is down, and another that knows less takes over
	jumping               // its clock jumps
)

// hit returns the window that a message of p meets now, or nil.
func (w *world) hit(p *process) *window {
	now := time.Since(w.began)
	for i := range w.windows {
		if x := &w.windows[i]; x.what <= deaf && (x.process < 0 || x.process == p.id) && now >= x.from && now < x.to {
			return x
		}
	}
	return nil
}

// faulty is the share of messages that meet with something on their way.
func (w *world) faulty() float64 {
	if w.calm || time.Since(w.began) >= w.quiet {
		return 0
	}
	return w.noise
}

// travel returns how long a message takes from now on, or false if it is lost.
func (p *process) travel(what string, id uint64, reply bool) (time.Duration, bool) {
	w := p.world
	takes := 50*time.Microsecond + w.upTo(w.latency, what+" takes", id)
	if x := w.hit(p); x != nil {
		switch {
		case x.what == silent:
			return x.to - time.Since(w.began) + takes, true
		case x.what == cutOff, reply:
			return 0, false
		}
	}
	switch share := w.faulty(); {
	case w.chance(share, what+" is lost", id):
		return 0, false
	case w.chance(share, what+" is slow", id):
		return takes + w.upTo(w.ttl/2, what+" is so slow", id), true
	case w.chance(share/4, what+" is late", id):
		return takes + w.upTo(3*w.ttl, what+" is so late", id), true
	}
	return takes, true
}

// request sends a request, of which the server does do when it arrives, perhaps twice or after ctx
// has ended. do is told how long the request took, and holds the server.
func (p *process) request(ctx context.Context, what string, id uint64, do func(age time.Duration) any) (any, error) {
	w := p.world
	sent, answers := time.Now(), make(chan any, 4)
	if p.dead.Load() {
		return nil, errRefused
	}
	if w.calm && what == "extend" {
		w.paced(id)
	}
	if w.blips && what == "ask" && w.first(id) && w.chance(0.5, "blip", id) {
		time.Sleep(w.upTo(time.Millisecond, "blip takes", id))
		return nil, errBroken
	}
	deliver := func(what string) {
		after, ok := p.travel(what, id, false)
		if !ok {
			return
		}
		time.AfterFunc(after, func() {
			w.mu.Lock()
			reply := any(errRefused)
			if !w.down {
				reply = do(time.Since(sent))
			}
			if *trace {
				w.book.Lock()
				w.note("  at the server: %s of %x, sent %v ago: %v", what, id, time.Since(sent), reply)
				w.book.Unlock()
			}
			w.mu.Unlock()
			if back, ok := p.travel(what+" reply", id, true); ok {
				time.AfterFunc(back, func() { answers <- reply })
			}
		})
	}
	deliver(what)
	if w.chance(w.faulty()/2, what+" twice", id) {
		deliver(what + " again")
	}
	breaks := time.NewTimer(time.Hour)
	defer breaks.Stop()
	if w.chance(w.faulty(), what+" breaks", id) {
		breaks.Reset(w.upTo(w.ttl/10, what+" breaks after", id))
	}
	select {
	case reply := <-answers:
		if err, ok := reply.(error); ok {
			return nil, err
		}
		return reply, nil
	case <-breaks.C:
		return nil, errBroken
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tell sends a message from the server to p, which may be lost. The caller holds the server.
func (p *process) tell(what string, id uint64, f func()) {
	if after, ok := p.travel(what, id, true); ok && !p.dead.Load() {
		time.AfterFunc(after, f)
	}
}

// first reports whether an owner has asked for nothing before.
func (w *world) first(owner uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked[owner]
	w.asked[owner] = true
	return !asked
}

// paced requires, where each request is answered, that not five for one hold are sent within TTL/8.
func (w *world) paced(owner uint64) {
	w.book.Lock()
	defer w.book.Unlock()
	w.sent[owner] = append(w.sent[owner], time.Now())
	at := w.sent[owner]
	at = at[max(0, len(at)-5):]
	if took := time.Since(at[0]); len(at) == 5 && took < w.ttl/8 {
		w.breaks("a hold was extended 5 times within %v, with a TTL of %v", took, w.ttl)
	}
}
