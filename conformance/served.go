package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/tb"
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
		l.tb.End()
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
	l := &served{tb: servedScope(s.tb.Context())}
	err := l.tb.Run(func() { l.Locker = s.make(l.tb, *r.Name, time.Duration(r.TTL)*time.Millisecond, r.Renew) })
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
		l.tb.End()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockers[r.Locker] != nil {
		return fmt.Errorf("the Locker %q is open already", r.Locker)
	}
	s.lockers[r.Locker] = l
	s.tb.Cleanup(l.tb.End)
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
		err := s.tb.Run(func() { of = s.h.Client(s.tb, ttl, renew) })
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

// servedScope returns the TB of a process's Lockers.
func servedScope(parent context.Context) *tb.Scope {
	return tb.New(parent, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
}
