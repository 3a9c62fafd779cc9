package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
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

// bare is a name without the Client's prefix.
func bare(name string) string {
	_, name, _ = strings.Cut(name, ":")
	return name
}

// process is one Client, and those who use it.
type process struct {
	world   *world
	id      int
	client  *locker.Client
	renews  bool
	dead    atomic.Bool // it was killed
	leaves  atomic.Bool // it is about to close
	owners  atomic.Uint64
	mutex   map[string]*locker.Mutex // by name, which its workers share
	workers sync.WaitGroup           // its workers
	done    sync.WaitGroup           // and what looks after them
}

// owner returns one that no other claim has.
func (p *process) owner() uint64 { return uint64(p.id+1)<<32 | p.owners.Add(1) }

func (w *world) process(id int) *process {
	p := &process{world: w, id: id, mutex: map[string]*locker.Mutex{}}
	opts := []locker.Option{locker.WithTTL(w.ttl)}
	if p.renews = !w.chance(0.3, "renewal", uint64(id)); !p.renews {
		opts = append(opts, locker.WithoutRenewal())
	}
	var err error
	if p.client, err = locker.New(w.server.driver(p), opts...); err != nil {
		panic(err)
	}
	for _, name := range w.names {
		p.mutex[name] = p.client.Mutex(name)
	}
	return p
}

// stay holds a lock of the process's own, as a process has that does something else beside: so its
// session goes on.
func (p *process) stay() {
	w := p.world
	m := p.client.Mutex(fmt.Sprint("own-", p.id))
	for !p.leaves.Load() && !p.dead.Load() && !w.settled.Load() {
		if h, err := m.Acquire(context.Background()); err == nil {
			for h.Err() == nil && !p.leaves.Load() && !w.settled.Load() {
				time.Sleep(w.ttl / 3)
				_ = h.Extend(context.Background())
			}
			_ = h.Unlock(context.Background())
		}
		time.Sleep(w.ttl / 10)
	}
}

// use has a worker take and give back locks until the time is up.
func (p *process) use(number int) {
	w, who := p.world, fmt.Sprintf("p%d.%d", p.id, number)
	id := uint64(p.id)<<8 | uint64(number)
	time.Sleep(w.upTo(w.ttl/5, "begin", id))
	for time.Since(w.began) < w.ends && !p.leaves.Load() && !p.dead.Load() {
		name := w.names[w.below(len(w.names), "name", id)]
		w.book.Lock()
		before := w.tokens[name]
		w.book.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), w.upTo(4*w.ttl, "patience", id))
		err := p.take(ctx, name, id, func(h hold, release func(t *workerHold)) {
			t := w.granted(p, name, who, h, before)
			p.watch(t, id)
			p.work(t, id)
			release(t)
		})
		cancel()
		if err != nil {
			p.failed(who, name, err)
			time.Sleep(w.upTo(w.ttl/4, "rest", id))
			continue
		}
		time.Sleep(w.upTo(w.ttl/10, "pause", id))
	}
}

// take takes a lock in one of several ways, and has work done under it, which gives it back.
func (p *process) take(ctx context.Context, name string, id uint64, work func(h hold, release func(*workerHold))) error {
	w, m := p.world, p.mutex[name]
	unlock := func(t *workerHold) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*w.ttl)
		defer cancel()
		if w.chance(0.1, "ended", id) {
			cancel()
		}
		w.unlock(ctx, t)
	}
	switch w.below(8, "how", id) {
	case 0:
		h, err := m.TryAcquire(ctx)
		if err == nil {
			work(h, unlock)
		}
		return err
	case 1, 2:
		err := m.Lock(ctx)
		if err == nil {
			if h := m.Hold(); h != nil && m.FencingToken() == h.Token() {
				work(own{h, m}, unlock)
			} else {
				_ = m.Unlock(ctx)
			}
		}
		return err
	case 3:
		began := false
		err := m.Do(ctx, func(context.Context) error {
			began = true
			if h := m.Hold(); h != nil && m.FencingToken() == h.Token() {
				work(done{own{h, m}, new(atomic.Int64)}, func(t *workerHold) {
					w.book.Lock()
					defer w.book.Unlock()
					t.unlocking = true
					w.over(t)
					w.note("%s returns from %s, token %d", t.who, name, t.hold.Token())
				})
			}
			return nil
		})
		if began {
			return nil
		}
		return err
	default:
		h, err := m.Acquire(ctx)
		if err == nil {
			work(h, unlock)
		}
		return err
	}
}

// work is what is done under a hold.
func (p *process) work(t *workerHold, id uint64) {
	w := p.world
	switch w.below(4, "work", id) {
	case 0:
		time.Sleep(w.upTo(w.ttl/20, "short", id))
	case 1:
		time.Sleep(w.upTo(w.ttl/2, "longer", id))
	case 2:
		time.Sleep(w.upTo(3*w.ttl, "long", id))
	default:
		for range w.below(4, "extends", id) {
			time.Sleep(w.upTo(w.ttl/2, "between", id))
			ctx, cancel := context.WithTimeout(context.Background(), w.upTo(w.ttl, "extend", id))
			before, sent := t.hold.Err(), time.Now()
			err := t.hold.Extend(ctx)
			cancel()
			if err == nil && before != nil {
				w.breaking("%s extended %s, which was lost", t.who, t.name)
			}
			if left := t.hold.Deadline().Sub(sent); err == nil && left < w.ttl/4 {
				w.breaking("%s's Extend of %s succeeded, and it lasts for %v of a TTL of %v", t.who, t.name, left, w.ttl)
			}
		}
	}
	if w.chance(0.1, "overstays", id) {
		time.Sleep(w.ttl + w.upTo(w.ttl, "overstay", id))
	}
}

// watch looks whether a loss is told in time.
func (p *process) watch(t *workerHold, id uint64) {
	w := p.world
	if !w.chance(0.5, "watch", id) {
		return
	}
	lost := t.hold.Lost()
	p.done.Go(func() {
		for {
			deadline := t.hold.Deadline()
			timer := time.NewTimer(time.Until(deadline) + time.Millisecond)
			select {
			case <-lost:
				timer.Stop()
				w.gone(t, 2*(w.ttl/100+2*time.Millisecond))
				if late := time.Since(deadline); late > time.Millisecond {
					w.breaking("%s's loss of %s was told %v after the deadline", t.who, t.name, late)
				}
				return
			case <-timer.C:
			}
			w.book.Lock()
			unlocking := t.unlocking
			w.book.Unlock()
			if unlocking {
				return
			}
			if !t.hold.Deadline().After(deadline) {
				select {
				case <-lost:
				default:
					w.breaking("%s has not been told of the loss of %s, whose deadline is over", t.who, t.name)
				}
				return
			}
		}
	})
}

// close closes the Client, and checks how long that takes.
func (p *process) close() {
	p.leaves.Store(true)
	began := time.Now()
	_ = p.client.Close()
	if took := time.Since(began); took > 6*time.Second {
		p.world.breaking("Close of p%d took %v", p.id, took)
	}
	p.workers.Wait()
	p.done.Wait()
}
