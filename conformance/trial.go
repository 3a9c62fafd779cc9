package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// row is a line of the suite's table.
type row struct {
	name    string
	promise string
	chance  bool       // whether it finds a violation depends on luck
	body    func(*env) // ends by returning, or as env.failf and its like do
}

// A trial that an unlucky pause of the machine, or a loss that the contract allows, can spoil is
// repeated: only what spoils every trial is the Locker's fault.
const trials = 5

// check runs trials of the scenario until one of them says something for certain.
func (r row) check(t TB, h Harness) error {
	t.Helper()
	limit := 30*time.Second + 30*h.TTL
	enough := time.Now().Add(limit / 2)
	for i := 1; ; i++ {
		err := r.trial(t, h, limit)
		if bad, ok := errors.AsType[*fatalError](err); ok {
			t.Fatalf("%s", bad.message)
		}
		doubt, ok := errors.AsType[*doubtful](err)
		if !ok {
			return err
		}
		if i == trials || time.Now().After(enough) {
			return fmt.Errorf("in each of %d trials, at last: %w", i, doubt.seen)
		}
		t.Logf("trial %d: %v", i, doubt.seen)
	}
}

// trial runs the body once, in a goroutine that is left alone if the Locker does not return.
func (r row) trial(t TB, h Harness, limit time.Duration) error {
	e := newEnv(t, h)
	defer e.close()
	go func() {
		defer e.end(nil) // unless the body has said something else
		r.body(e)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-e.verdict:
		return err
	case <-timer.C:
		return fmt.Errorf("the scenario did not end within %v", limit)
	}
}

// doubtful is an error that counts only if every trial ends with one.
type doubtful struct{ seen error }

func (d *doubtful) Error() string { return d.seen.Error() }

// fatalError is a Fatalf of the harness.
type fatalError struct{ message string }

func (e *fatalError) Error() string { return e.message }

// env is one trial of a scenario: what its body works with. It is the TB of what the harness makes for
// it, which ends with the trial.
type env struct {
	*scope
	h       Harness
	verdict chan error // holds the first
	others  *sync.WaitGroup

	ttl      time.Duration // the harness's
	long     time.Duration // by far longer than anything but a lapse takes
	prompt   time.Duration // by far shorter than long, and longer than any pause of the machine
	patience time.Duration // after which a call is said not to return
}

func newEnv(t TB, h Harness) *env {
	e := &env{h: h, verdict: make(chan error, 1), others: &sync.WaitGroup{}, ttl: h.TTL}
	e.long = max(10*h.TTL, 3*time.Second)
	e.prompt = max(e.long/3, time.Second)
	e.patience = 5*time.Second + 4*h.TTL
	e.scope = newScope(t, func(format string, args ...any) {
		e.end(&fatalError{fmt.Sprintf(format, args...)})
		runtime.Goexit()
	})
	return e
}

// end gives the trial's verdict, unless it has one.
func (e *env) end(verdict error) {
	select {
	case e.verdict <- verdict:
	default:
	}
}

// close ends what the trial has begun. Each step is bounded: the Locker may hang.
func (e *env) close() {
	e.cancel()
	within(2*time.Second, e.others.Wait)
	within(15*time.Second, e.cleanUp)
}

func within(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// failf ends the trial and the scenario: the promise is broken for certain.
func (e *env) failf(format string, args ...any) {
	e.end(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// doubtf ends the trial: the promise is broken if it looks so every time.
func (e *env) doubtf(format string, args ...any) {
	e.end(&doubtful{fmt.Errorf(format, args...)})
	runtime.Goexit()
}

// skip ends the scenario.
func (e *env) skip(reason string) {
	e.end(Skip(reason))
	runtime.Goexit()
}

// spawn runs f in a goroutine that the trial's end waits for.
func (e *env) spawn(f func()) { e.others.Go(f) }

// scope is a TB whose life ends before that of the TB it is made of.
type scope struct {
	TB
	ctx    context.Context
	cancel context.CancelFunc
	fatalf func(format string, args ...any)

	mu       sync.Mutex
	ended    bool
	cleanups []func()
}

func newScope(t TB, fatalf func(string, ...any)) *scope {
	s := &scope{TB: t, fatalf: fatalf}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	return s
}

// Context ends before the cleanups run, as that of package testing does.
func (s *scope) Context() context.Context { return s.ctx }

// Fatalf ends the calling goroutine, and the trial.
func (s *scope) Fatalf(format string, args ...any) { s.fatalf(format, args...) }

// Logf is dropped after the end: package testing would panic, and a goroutine may have been left behind.
func (s *scope) Logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.TB.Helper()
		s.TB.Logf(format, args...)
	}
}

// Cleanup has f called at the end of the scope, last in, first out.
func (s *scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *scope) cleanUp() {
	s.cancel()
	for {
		s.mu.Lock()
		last := len(s.cleanups) - 1
		if last < 0 {
			s.ended = true
			s.mu.Unlock()
			return
		}
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		f()
	}
}

// refusing is a scope whose Fatalf is an answer, and ends the calling goroutine alone.
type refusing struct{ *scope }

// Fatalf ends the calling goroutine.
func (r refusing) Fatalf(string, ...any) { runtime.Goexit() }
