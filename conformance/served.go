package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// answer does what a request asks for.
func (s *server) answer(ctx context.Context, r stdio.Request) stdio.Answer {
	if r.Op == stdio.AskOpen {
		return answerOf(s.open(r))
	}
	s.mu.Lock()
	l := s.lockers[r.Locker]
	s.mu.Unlock()
	if l == nil {
		return answerOf(fmt.Errorf("no Locker %q is open", r.Locker))
	}
	switch r.Op {
	case stdio.CanLock:
		return answerOf(l.Lock(ctx))
	case stdio.CanUnlock:
		return answerOf(l.Unlock(ctx))
	case stdio.CanExtend:
		return answerOf(l.Extend(ctx))
	case stdio.CanToken:
		return stdio.Answer{Result: stdio.OK, Token: stdio.Token(l.FencingToken())}
	case stdio.AskClose:
		s.mu.Lock()
		delete(s.lockers, r.Locker)
		s.mu.Unlock()
		l.tb.end()
		return answerOf(nil)
	default:
		return l.more(ctx, r.Op)
	}
}

// more is what not every Locker has.
func (l *served) more(ctx context.Context, op string) stdio.Answer {
	if tries, ok := l.Locker.(tryLocker); ok && op == stdio.CanTry {
		return answerOf(tries.TryLock(ctx))
	}
	if tells, ok := l.Locker.(deadliner); ok && op == stdio.CanDeadline {
		deadline := tells.Deadline()
		if deadline.IsZero() {
			return answerOf(locker.ErrNotHeld)
		}
		left := float64(time.Until(deadline)) / float64(time.Millisecond)
		return stdio.Answer{Result: stdio.OK, Left: &left}
	}
	if tells, ok := l.Locker.(loser); ok && op == stdio.CanLost {
		select {
		case <-tells.Lost():
			return answerOf(locker.ErrLost)
		case <-ctx.Done():
			return answerOf(ctx.Err())
		}
	}
	return answerOf(fmt.Errorf("no such operation: %q", op))
}

// answerOf is an error of the contract as an answer.
func answerOf(err error) stdio.Answer {
	answer := stdio.Answer{Result: stdio.Failed}
	switch {
	case err == nil:
		return stdio.Answer{Result: stdio.OK}
	case errors.Is(err, locker.ErrLost):
		answer.Result = stdio.Lost
	case errors.Is(err, locker.ErrNotHeld):
		answer.Result = stdio.NotHeld
	case errors.Is(err, locker.ErrHeld):
		answer.Result = stdio.Held
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		answer.Result = stdio.Cancelled
	}
	answer.Error = err.Error()
	return answer
}

// open makes a Locker.
func (s *server) open(r stdio.Request) error {
	if r.Name == nil {
		return errors.New("no name of a lock")
	}
	l := &served{tb: newServedTB(s.tb.ctx)}
	err := l.tb.run(func(t TB) { l.Locker = s.make(t, *r.Name, time.Duration(r.TTL)*time.Millisecond, r.Renew) })
	switch rw, ok := l.Locker.(RWLocker); {
	case err != nil:
	case l.Locker == nil:
		err = errors.New("there is no Locker")
	case r.Shared && !ok:
		err = errNoShares
	case r.Shared:
		l.Locker = sharing{rw}
	}
	if err != nil {
		l.tb.end()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockers[r.Locker] != nil {
		return fmt.Errorf("the Locker %q is open already", r.Locker)
	}
	s.lockers[r.Locker] = l
	s.tb.Cleanup(l.tb.end)
	return nil
}

var errNoShares = errors.New("what the process serves is no RWLocker")

// make makes one by New, or of a client that others share. The first of them makes the client.
func (s *server) make(t TB, name string, ttl time.Duration, renew bool) locker.Locker {
	if s.h.Client == nil {
		return s.h.New(t, name, ttl)
	}
	s.making.Lock()
	defer s.making.Unlock()
	key := clientKey{ttl, renew}
	of := s.clients[key]
	if of == nil {
		err := s.tb.run(func(t TB) { of = s.h.Client(t, ttl, renew) })
		if err != nil {
			t.Fatalf("%v", err)
		}
		s.clients[key] = of
	}
	return of(name)
}

// promisesInWords are those of a hello: a promise with a condition is that condition.
func promisesInWords(promises locker.Guarantees) map[string]string {
	words := map[string]string{}
	for g, p := range promises {
		words[string(g)] = p.Level.String()
		if p.Level == locker.LevelConditional {
			words[string(g)] = p.Condition
		}
	}
	return words
}

// promisesOf is the reverse.
func promisesOf(words map[string]string) locker.Guarantees {
	promises := locker.Guarantees{}
	for g, says := range words {
		promise := locker.Promise{Level: locker.LevelConditional, Condition: says}
		for _, level := range []locker.Level{locker.LevelYes, locker.LevelNo} {
			if says == level.String() {
				promise = locker.Promise{Level: level}
			}
		}
		promises[locker.Guarantee(g)] = promise
	}
	return promises
}

// servedTB is the TB of a process's Lockers.
type servedTB struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	fatal    error
	cleanups []func()
}

func newServedTB(parent context.Context) *servedTB {
	t := &servedTB{}
	t.ctx, t.cancel = context.WithCancel(parent)
	return t
}

// Helper does nothing: there are no lines of test code to show.
func (t *servedTB) Helper() {}

// Logf is for people.
func (t *servedTB) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Context ends before the Cleanup functions run.
func (t *servedTB) Context() context.Context { return t.ctx }

// Fatalf ends the calling goroutine.
func (t *servedTB) Fatalf(format string, args ...any) {
	t.mu.Lock()
	t.fatal = fmt.Errorf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// run runs f, and returns what it called Fatalf with.
func (t *servedTB) run(f func(TB)) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(t)
	}()
	<-done
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.fatal
	t.fatal = nil
	return err
}

// Cleanup has f called at the end, last in, first out.
func (t *servedTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// end may be called again.
func (t *servedTB) end() {
	t.cancel()
	t.mu.Lock()
	cleanups := t.cleanups
	t.cleanups = nil
	t.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
}
