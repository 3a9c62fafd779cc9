package simulation

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

// tenure is a hold that a worker has.
type tenure struct {
	name      string
	who       string
	hold      hold
	process   *process
	unlocking bool
}

// hold is a *locker.Hold, or one that a Mutex or a Do has.
type hold interface {
	Err() error
	Token() uint64
	Deadline() time.Time
	Lost() <-chan struct{}
	Extend(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// own is the hold of a Mutex that the workers of a process share.
type own struct {
	*locker.Mutex
	token uint64
}

func (o own) Token() uint64 { return o.token }

func (o own) Err() error {
	if o.FencingToken() != o.token {
		return locker.ErrLost
	}
	return nil
}

// done is the hold of a Do, whose function may go on until it returns, or the deadline is over.
type done struct {
	own
	deadline *atomic.Int64 // since the beginning, as it was last seen
}

func (d done) Err() error {
	if until := d.Mutex.Deadline(); !until.IsZero() && d.FencingToken() == d.token {
		d.deadline.Store(max(d.deadline.Load(), until.UnixNano()))
	}
	if time.Now().UnixNano() >= d.deadline.Load() {
		return locker.ErrLost
	}
	return nil
}

func (d done) Deadline() time.Time {
	_ = d.Err()
	return time.Unix(0, d.deadline.Load())
}

// granted checks a hold that was just granted. before is the largest token that had been granted
// when its Lock was called.
func (w *world) granted(p *process, name, who string, h hold, before uint64) *tenure {
	t := &tenure{name: name, who: who, hold: h, process: p}
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s has %s, token %d, until %v, by %T", who, name, h.Token(), h.Deadline().Sub(w.began), h)
	w.grants++
	if p.dead.Load() || h.Err() != nil {
		return t
	}
	if w.safe {
		for _, o := range w.active[name] {
			if !o.unlocking && !o.process.dead.Load() && o.hold.Err() == nil {
				w.breaks("%s has %s with token %d while %s has it with token %d", who, name, h.Token(), o.who, o.hold.Token())
			}
		}
		if h.Token() <= before {
			w.breaks("the token of %s is %d, and %d was granted before", name, h.Token(), before)
		}
	}
	w.tokens[name] = max(w.tokens[name], h.Token())
	if left := time.Until(h.Deadline()); left < w.ttl/2 || left > w.ttl {
		w.breaks("%s has %s for %v more when it is granted, of a TTL of %v", who, name, left, w.ttl)
	}
	w.active[name] = append(w.active[name], t)
	return t
}

// over takes a hold off the book.
func (w *world) over(t *tenure) {
	for i, o := range w.active[t.name] {
		if o == t {
			w.active[t.name] = append(w.active[t.name][:i:i], w.active[t.name][i+1:]...)
			return
		}
	}
}

// unlock ends a hold, and checks what is said of it.
func (w *world) unlock(ctx context.Context, t *tenure) {
	deadline := t.hold.Deadline()
	before := t.hold.Err()
	w.book.Lock()
	t.unlocking = true
	w.over(t)
	w.book.Unlock()
	err := t.hold.Unlock(ctx)
	w.mu.Lock()
	freed := w.truth[t.name][t.hold.Token()]
	w.mu.Unlock()
	w.gone(t, 0)
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s unlocks %s, token %d: %v", t.who, t.name, t.hold.Token(), err)
	late := time.Since(deadline)
	switch {
	case t.process.dead.Load() || t.process.leaves.Load():
	case before != nil && !errors.Is(err, locker.ErrLost):
		w.breaks("%s's Unlock of %s says %v; the hold was lost", t.who, t.name, err)
	case err == nil && !freed && w.safe:
		w.breaks("%s's Unlock of %s says nil, and the server has not released token %d", t.who, t.name, t.hold.Token())
	case before == nil && late > 10*time.Millisecond:
		w.breaks("%s's Unlock of %s returned %v after the deadline", t.who, t.name, late)
	case errors.Is(err, locker.ErrNotHeld):
		w.breaks("%s's Unlock of %s says %v of a hold", t.who, t.name, err)
	}
	if before != nil || errors.Is(err, locker.ErrLost) {
		w.lost++
		if w.calm && !t.process.leaves.Load() && before != nil && t.process.renews {
			w.breaks("%s lost %s though nothing went wrong", t.who, t.name)
		}
	}
}

// gone requires, where nothing goes wrong, that the server has nothing left of a hold that is over,
// soon after a time.
func (w *world) gone(t *tenure, after time.Duration) {
	if !w.calm || t.process.leaves.Load() {
		return
	}
	token := t.hold.Token()
	time.AfterFunc(after+2*w.latency+3*time.Millisecond, func() {
		w.mu.Lock()
		holder := w.server.holder(t.name)
		w.mu.Unlock()
		if holder == token && !t.process.leaves.Load() {
			w.breaking("%s's hold of %s is over, and the server still has token %d", t.who, t.name, token)
		}
	})
}

func (w *world) breaking(format string, args ...any) {
	w.book.Lock()
	defer w.book.Unlock()
	w.breaks(format, args...)
}

// failed checks why there is no hold.
func (p *process) failed(who, name string, err error) {
	w := p.world
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s does not have %s: %v", who, name, err)
	known := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrClosed) || errors.Is(err, locker.ErrLost)
	if strings.Contains(err.Error(), "granted too late") && !known && !strings.Contains(err.Error(), "trylock") {
		w.breaks("%s's Lock of %s gave up after a grant that came too late: %v", who, name, err)
	}
	if w.calm && !known {
		w.breaks("%s's Lock of %s failed though nothing went wrong: %v", who, name, err)
	}
}
