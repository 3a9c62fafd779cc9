package redisscript

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/interrupt"
)

// lone is a request that is made by the goroutine that asks, while no other is under way, and its
// context. It is interrupted when the caller's context ends, at the next look.
type lone struct {
	caller context.Context
	until  time.Time
	watch  interrupt.Watch
	owner  [64]byte // of most claims

	mu     sync.Mutex
	done   chan struct{} // nil if nobody has asked for it, nor for that of an earlier one
	err    error         // why it was interrupted
	ended  bool          // the client library has returned
	forget func() bool   // has the caller's context not interrupt it any more
	timer  *time.Timer
}

// Watch returns the Watch of the request whose context ctx is: it is interrupted when ctx ends, on
// the Conns of its Runner. It returns nil of a request that nothing interrupts.
func Watch(ctx context.Context) *interrupt.Watch {
	if l, ok := ctx.(*lone); ok {
		return &l.watch
	}
	return nil
}

// onePiece is what an owner and the key of its lock may be together, so that client libraries write
// all up to the owner in one piece, unless the source of a script is in front of it.
const onePiece = 512

// sendLone makes r, and returns when r is over or was interrupted. It returns false if r has to go
// with others, or cannot be interrupted. Its connection is found by its owner, who has to be
// written in one piece. Requests that are about no owner, or several, are no part of a Lock or an
// Unlock, and go with others.
func (s *sender) sendLone(ctx context.Context, r *request) (reply Reply, answered, ok bool) {
	if s.conns == nil || r.owner == "" || len(r.owner)+len(r.calls[0].Keys[0].(string)) > onePiece {
		return Reply{}, false, false
	}
	l := &lone{caller: ctx, until: r.until}
	era, alone := s.beginLone(l, r.owner)
	if !alone {
		return Reply{}, false, false
	}
	answered = s.runLone(l, era, r)
	why := l.err
	if why == nil && r.replies[0].Err != nil && !time.Now().Before(l.until) { // the client library was the first to see it
		why = cmp.Or(ctx.Err(), errNoAnswer)
	}
	if !answered {
		return Reply{Err: why, MayHaveRun: r.replies[0].MayHaveRun}, false, true
	}
	if why != nil && r.replies[0].Err != nil {
		r.replies[0].Err = why
	}
	return s.onReply(r, cmp.Or(why, errNoAnswer)), true, true
}

// runLone makes r. It returns false if r was interrupted, and may still be carried out: r ends when
// that is over. A hook of the client library may panic.
func (s *sender) runLone(l *lone, era int32, r *request) (answered bool) {
	defer func() {
		late := s.endLone(l.end())
		s.goOn(era)
		if answered = late == nil; !answered {
			go s.awaitLate(late, r, l.until)
		}
	}()
	Run(l, s.runner, r.calls, r.replies)
	return true
}

// beginLone counts l as a batch, if it is the only one.
func (s *sender) beginLone(l *lone, owner string) (era int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.lone != nil || s.underWay > 0 || !s.conns.Begin(&l.watch, append(l.owner[:0], owner...)) {
		return 0, false
	}
	s.underWay++
	s.latest = time.Now()
	s.direct.Add(1)
	s.lone = l
	l.done, s.done = s.done, nil
	if !s.looking {
		s.looking = true
		s.look.Reset(unwatched)
	}
	return s.era, true
}

// endLone has the next request be a lone one, if it meets no other, with that channel for its Done.
// It counts what is late as a batch that close waits for.
func (s *sender) endLone(done chan struct{}) (late *interrupt.Late) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lone, s.done = nil, done
	if late = s.conns.End(); late == nil {
		return nil
	}
	if s.late == nil {
		s.late = map[*interrupt.Late]struct{}{}
	}
	s.late[late] = struct{}{}
	s.direct.Add(1)
	if s.closed {
		late.Close()
	}
	return late
}

// awaitLate ends r, which was interrupted, when the server has carried it out, or as soon as it
// would have been given up otherwise.
func (s *sender) awaitLate(late *interrupt.Late, r *request, until time.Time) {
	defer s.direct.Done()
	late.Await(until)
	s.mu.Lock()
	delete(s.late, late)
	s.mu.Unlock()
	r.ended.Store(true)
	r.done <- struct{}{}
}

// lookAtLone runs every 10 ms while there are lone requests. Most have been answered before they
// are looked at: only the others cost a timer and a context.AfterFunc. A shorter interval costs a
// request a quarter of its time: a processor that waits for a reply has to be set to wake up sooner
// than at the kernel's next tick, which is up to 4 ms away.
func (s *sender) lookAtLone() {
	s.mu.Lock()
	l := s.lone
	if s.looking = !s.closed && time.Since(s.latest) < 2*unwatched; s.looking {
		s.look.Reset(unwatched)
	}
	s.mu.Unlock()
	if l != nil {
		l.interruptAtEnd()
	}
}

// interruptAtEnd has l interrupted when its caller's context ends, or its time is over.
func (l *lone) interruptAtEnd() {
	forget := context.AfterFunc(l.caller, func() { l.interrupt(l.caller.Err()) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.forget != nil {
		forget()
		return
	}
	l.forget = forget
	l.timer = time.AfterFunc(time.Until(l.until), func() { l.interrupt(errNoAnswer) })
}

// interrupt ends the wait for the reply: the outcome is unknown from here on.
func (l *lone) interrupt(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.err != nil {
		return
	}
	l.err = why
	if l.done != nil {
		close(l.done)
	}
	l.watch.Interrupt()
}

// end ends l, whose client library has returned: it is not interrupted any more. It returns the
// channel of Done if that is open: who waits for it still may as well see another be interrupted.
func (l *lone) end() (done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.forget != nil {
		l.forget()
		l.timer.Stop()
	}
	if l.err != nil {
		return nil
	}
	return l.done
}

// Deadline implements context.Context.
func (l *lone) Deadline() (time.Time, bool) { return l.until, true }

// Done implements context.Context.
func (l *lone) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended || l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context. It is no longer nil when l has ended, as the channel of Done may
// be closed from then on.
func (l *lone) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.err != nil {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (l *lone) Value(key any) any { return l.caller.Value(key) }
