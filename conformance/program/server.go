package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/tb"
)

// server answers the suite.
type server struct {
	h  conformance.Harness
	tb *tb.Scope

	writing sync.Mutex
	out     io.Writer

	mu      sync.Mutex
	lockers map[string]*servedLocker
	calls   map[uint64]context.CancelFunc
	under   sync.WaitGroup

	making  sync.Mutex
	clients map[clientKey]func(name string) locker.Locker
}

// servedLocker is a Locker, and what ends with it.
type servedLocker struct {
	locker.Locker
	tb *tb.Scope
}

// clientKey is what Lockers of one client have in common.
type clientKey struct {
	ttl   time.Duration
	renew bool
}

func newServer(out io.Writer, h conformance.Harness) *server {
	return &server{
		h: h, tb: servedScope(context.Background()), out: out, lockers: map[string]*servedLocker{},
		calls: map[uint64]context.CancelFunc{}, clients: map[clientKey]func(string) locker.Locker{},
	}
}

// serve answers until in ends. Calls that are under way then have to end, as when the suite has
// crashed.
func (s *server) serve(in io.Reader, hello stdio.Hello) error {
	hello.Protocol = stdio.Version
	s.write(hello)
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 4096), stdio.LongestLine)
	var err error
	for err == nil && lines.Scan() {
		var r stdio.Request
		if err = json.Unmarshal(lines.Bytes(), &r); err == nil {
			s.take(r)
		} else {
			err = fmt.Errorf("a line that is no request: %s: %w", stdio.Shown(lines.Bytes()), err)
		}
	}
	s.tb.Cancel()
	s.under.Wait()
	s.tb.End()
	why := lines.Err()
	if errors.Is(why, bufio.ErrTooLong) {
		why = fmt.Errorf("a request is a line of more than %d bytes", stdio.LongestLine)
	}
	return errors.Join(err, why)
}

func (s *server) write(line any) {
	text, err := json.Marshal(line)
	if err != nil { // of strings and numbers
		panic(err)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_, _ = s.out.Write(append(text, '\n')) // if the suite is gone, in ends too
}

// take has a request answered. What is cancelled was known before.
func (s *server) take(r stdio.Request) {
	if r.Op == stdio.AskCancel {
		s.mu.Lock()
		if cancel := s.calls[r.Request]; cancel != nil {
			cancel()
		}
		s.mu.Unlock()
		s.write(stdio.Answer{ID: r.ID, Result: stdio.OK})
		return
	}
	ctx, cancel := context.WithCancel(s.tb.Context())
	if r.Limit != nil {
		ctx, cancel = context.WithTimeout(s.tb.Context(), time.Duration(*r.Limit)*time.Millisecond)
	}
	s.mu.Lock()
	s.calls[r.ID] = cancel
	s.mu.Unlock()
	s.under.Go(func() {
		answer := s.answer(ctx, r)
		s.mu.Lock()
		delete(s.calls, r.ID)
		s.mu.Unlock()
		cancel()
		answer.ID = r.ID
		s.write(answer)
	})
}

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
	l := &servedLocker{tb: servedScope(s.tb.Context())}
	err := l.tb.Run(func() { l.Locker = s.make(l.tb, *r.Name, time.Duration(r.TTL)*time.Millisecond, r.Renew) })
	switch rw, ok := l.Locker.(conformance.RWLocker); {
	case err != nil:
	case l.Locker == nil:
		err = errors.New("there is no Locker")
	case r.Shared && !ok:
		err = remote.ErrNoShares
	case r.Shared:
		l.Locker = power.Sharing{Sharer: rw}
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

// make makes one by New, or of a client that others share. The first of them makes the client.
func (s *server) make(t conformance.TB, name string, ttl time.Duration, renew bool) locker.Locker {
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

// servedScope returns the TB of a process's Lockers.
func servedScope(parent context.Context) *tb.Scope {
	return tb.New(parent, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
}

// more is what not every Locker has.
func (l *servedLocker) more(ctx context.Context, op string) stdio.Answer {
	if tries, ok := l.Locker.(power.TryLocker); ok && op == stdio.CanTry {
		return answerOf(tries.TryLock(ctx))
	}
	if tells, ok := power.Of[power.Deadliner](l.Locker); ok && op == stdio.CanDeadline {
		deadline := tells.Deadline()
		if deadline.IsZero() {
			return answerOf(locker.ErrNotHeld)
		}
		left := float64(time.Until(deadline)) / float64(time.Millisecond)
		return stdio.Answer{Result: stdio.OK, Left: &left}
	}
	if tells, ok := power.Of[power.Loser](l.Locker); ok && op == stdio.CanLost {
		select {
		case <-tells.Lost():
			return answerOf(locker.ErrLost)
		case <-ctx.Done():
			return answerOf(ctx.Err())
		}
	}
	return answerOf(fmt.Errorf("no such operation: %q", op))
}
