package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// servedEnv is set in the processes that the suite starts.
const servedEnv = "LOCKER_CONFORMANCE_PROCESS"

// Serve serves a Locker to the suite, and does not return, in a process that the suite has started by Faults.Process. In every
// other process it returns at once. In a test binary, call it first in TestMain:
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
func Serve(newLocker func(t TB, name string, ttl time.Duration) locker.Locker) {
	if os.Getenv(servedEnv) == "" {
		return
	}
	replies := os.Stdout
	os.Stdout = os.Stderr // whatever else is printed is no reply
	tb := &servedTB{}
	tb.ctx, tb.cancel = context.WithCancel(context.Background())
	server := rpc.NewServer()
	if err := server.RegisterName("Locker", &served{tb: tb, newLocker: newLocker, calls: map[uint64]context.CancelFunc{}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server.ServeConn(stdio{suite{os.Stdin, tb.cancel}, replies})
	tb.end()
	os.Exit(0)
}

// stdio is the pipe to the suite.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// suite is what the suite says. Calls that are under way when it says no more, as when it has crashed, have to end: net/rpc
// waits for them.
type suite struct {
	io.Reader
	gone func()
}

func (s suite) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		s.gone()
	}
	return n, err
}

// servedTB is the TB of a process's Locker.
type servedTB struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	fatal    error
	cleanups []func()
}

func (t *servedTB) Helper()                         {}
func (t *servedTB) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (t *servedTB) Context() context.Context        { return t.ctx }

func (t *servedTB) Fatalf(format string, args ...any) {
	t.mu.Lock()
	t.fatal = fmt.Errorf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *servedTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *servedTB) end() {
	t.cancel()
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// served is what net/rpc calls.
type served struct {
	tb        *servedTB
	newLocker func(t TB, name string, ttl time.Duration) locker.Locker
	locker    locker.Locker

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc
}

// What travels has no names of its own, as net/rpc would want those to be exported.
type (
	// wanted is what the Locker is made from.
	wanted = struct {
		Name   string
		TTL    time.Duration
		Shares bool // Lock takes them
	}
	// request is a call of the Locker.
	request = struct {
		ID uint64
		Op string
	}
	// reply is what came of it. Is holds the places among sentinels of what its error matches.
	reply = struct {
		Token  uint64
		Failed bool
		Text   string
		Is     []int
	}
)

// sentinels are the errors that keep their identity between processes.
var sentinels = []error{
	locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost, locker.ErrClosed, locker.ErrUnsupported,
	context.Canceled, context.DeadlineExceeded,
}

// Open makes the Locker.
func (s *served) Open(with wanted, _ *struct{}) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.locker = s.newLocker(s.tb, with.Name, with.TTL)
	}()
	<-done
	s.tb.mu.Lock()
	defer s.tb.mu.Unlock()
	switch rw, ok := s.locker.(RWLocker); {
	case s.tb.fatal != nil:
		return s.tb.fatal
	case s.locker == nil:
		return errors.New("there is no Locker")
	case with.Shares && !ok:
		return errNoShares
	case with.Shares:
		s.locker = sharing{rw}
	}
	return nil
}

var errNoShares = errors.New("what the process serves is no RWLocker")

// Call calls the Locker.
func (s *served) Call(call request, answer *reply) error {
	ctx, cancel := context.WithCancel(s.tb.ctx)
	defer cancel()
	s.mu.Lock()
	s.calls[call.ID] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, call.ID)
	}()
	err := s.do(ctx, call.Op, answer)
	if err == nil {
		return nil
	}
	answer.Failed, answer.Text = true, err.Error()
	for i, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			answer.Is = append(answer.Is, i)
		}
	}
	return nil
}

func (s *served) do(ctx context.Context, op string, answer *reply) error {
	switch op {
	case "Lock":
		return s.locker.Lock(ctx)
	case "Unlock":
		return s.locker.Unlock(ctx)
	case "Extend":
		return s.locker.Extend(ctx)
	case "FencingToken":
		answer.Token = s.locker.FencingToken()
		return nil
	default:
		return fmt.Errorf("no such call: %s", op)
	}
}

// Cancel ends the ctx of a call.
func (s *served) Cancel(id uint64, _ *struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[id]; cancel != nil {
		cancel()
	}
	return nil
}
