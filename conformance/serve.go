package conformance

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
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/tb"
)

// servedEnv is set in the processes that the suite starts.
const servedEnv = "LOCKER_CONFORMANCE_PROCESS"

// Serve serves a Locker to the suite, and does not return, in a process that the suite has started
// by Faults.Process. In every other process it returns at once. In a test binary, call it first in
// TestMain:
//
//	func TestMain(m *testing.M) {
//		conformance.Serve(newLocker) // the Harness's New
//		os.Exit(m.Run())
//	}
//
// with, as the Harness's Faults.Process,
//
//	func(conformance.TB) *exec.Cmd {
//		cmd := exec.Command(os.Args[0])
//		cmd.Env = append(os.Environ(), "MYLOCK_ADDR="+addr)
//		return cmd
//	}
//
// The suite and the process speak the protocol of docs/judge-any-language.md.
func Serve(newLocker func(t TB, name string, ttl time.Duration) locker.Locker) {
	if os.Getenv(servedEnv) == "" {
		return
	}
	replies := os.Stdout
	os.Stdout = os.Stderr // whatever else is printed is no reply
	s := newServer(replies, Harness{New: newLocker})
	err := s.serve(os.Stdin, stdio.Hello{Capabilities: []string{stdio.CanLock, stdio.CanUnlock, stdio.CanExtend, stdio.CanToken, stdio.CanCancel, stdio.CanExpire}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ServeLocks serves the Lockers of h.New, and of h.Client if there is one, over in and out, until
// in ends. A program that calls it can be judged by the suite as a program in any language can: see
// docs/judge-any-language.md. The suite is told name, and which methods a Locker of h.New has
// beside the four. Nothing else may be written to out.
func ServeLocks(in io.Reader, out io.Writer, name string, h Harness) error {
	s := newServer(out, h)
	hello := stdio.Hello{Name: name, Capabilities: []string{stdio.CanLock, stdio.CanUnlock, stdio.CanExtend, stdio.CanToken, stdio.CanCancel, stdio.CanExpire}}
	err := s.tb.Run(func() {
		l := h.New(s.tb, freshName(), h.TTL)
		if _, ok := l.(tryLocker); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanTry)
		}
		if _, ok := l.(loser); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanLost)
		}
		if _, ok := l.(deadliner); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanDeadline)
		}
		promises := h.Promises
		if g, ok := l.(guarantor); ok && promises == nil {
			promises = g.Guarantees()
		}
		hello.Promises = promisesInWords(promises)
	})
	if err != nil {
		s.tb.End()
		return err
	}
	if h.Client != nil {
		hello.Capabilities = append(hello.Capabilities, stdio.CanShare, stdio.CanRenew)
	}
	return s.serve(in, hello)
}

// server answers the suite.
type server struct {
	h  Harness
	tb *tb.Scope

	writing sync.Mutex
	out     io.Writer

	mu      sync.Mutex
	lockers map[string]*served
	calls   map[uint64]context.CancelFunc
	under   sync.WaitGroup

	making  sync.Mutex
	clients map[clientKey]func(name string) locker.Locker
}

// served is a Locker, and what ends with it.
type served struct {
	locker.Locker
	tb *tb.Scope
}

// clientKey is what Lockers of one client have in common.
type clientKey struct {
	ttl   time.Duration
	renew bool
}

func newServer(out io.Writer, h Harness) *server {
	return &server{
		h: h, tb: servedScope(context.Background()), out: out, lockers: map[string]*served{},
		calls: map[uint64]context.CancelFunc{}, clients: map[clientKey]func(string) locker.Locker{},
	}
}

// serve answers until in ends. Calls that are under way then have to end, as when the suite has crashed.
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
