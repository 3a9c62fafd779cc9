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

	mu       sync.Mutex
	done     chan struct{} // nil if nobody has asked for it
	err      error         // why it was interrupted
	answered bool
	forget   func() bool // has the caller's context not interrupt it any more
	timer    *time.Timer
}

// sendLone makes r, and returns when r is over. It returns false if r has to go with others, or
// cannot be interrupted.
func (s *sender) sendLone(ctx context.Context, until time.Time, r *request) (reply Reply, ok bool) {
	if s.conns == nil || r.owner == "" {
		return Reply{}, false
	}
	l := &lone{caller: ctx, until: until}
	era, alone := s.beginLone(l, r.owner)
	if !alone {
		return Reply{}, false
	}
	Run(l, s.runner, r.calls, r.replies)
	why := l.end()
	if why == nil && !time.Now().Before(until) { // the client library was the first to see it
		why = cmp.Or(ctx.Err(), errNoAnswer)
	}
	s.endLone()
	s.goOn(era)
	if why != nil && r.replies[0].Err != nil {
		r.replies[0].Err = why
	}
	return s.onReply(r, cmp.Or(why, errNoAnswer)), true
}

// beginLone counts l as a batch, if it is the only one.
func (s *sender) beginLone(l *lone, owner string) (era int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.lone != nil || s.underWay > 0 {
		return 0, false
	}
	s.underWay++
	s.latest = time.Now()
	s.direct.Add(1)
	s.lone = l
	s.conns.Begin(&l.watch, []byte(owner))
	if !s.looking {
		s.looking = true
		s.look.Reset(moment)
	}
	return s.era, true
}

// endLone has the next request be a lone one, if it meets no other.
func (s *sender) endLone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lone = nil
	s.conns.End()
}

// lookAtLone runs once a moment while there are lone requests. Most have been answered before they
// are looked at: only the others cost a timer and a context.AfterFunc.
func (s *sender) lookAtLone() {
	s.mu.Lock()
	l := s.lone
	if s.looking = !s.closed && (l != nil && l != s.seen || time.Since(s.latest) < 2*moment); s.looking {
		s.look.Reset(moment)
	}
	s.seen = l
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
	if l.answered || l.forget != nil {
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
	if l.answered || l.err != nil {
		return
	}
	l.err = why
	if l.done != nil {
		close(l.done)
	}
	l.watch.Interrupt()
}

// end ends l, whose client library has returned. It returns why it was interrupted, if it was.
func (l *lone) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = true
	if l.forget != nil {
		l.forget()
		l.timer.Stop()
	}
	return l.err
}

// Deadline implements context.Context.
func (l *lone) Deadline() (time.Time, bool) { return l.until, true }

// Done implements context.Context.
func (l *lone) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (l *lone) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (l *lone) Value(key any) any { return l.caller.Value(key) }
