// Package tb implements the TB of package conformance: for programs that are no tests, and for what
// ends before a test does.
package tb

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Scope implements conformance.TB. It ends before the program or the test that it is made for.
type Scope struct {
	parent Parent
	ctx    context.Context
	cancel context.CancelFunc
	fatalf func(format string, args ...any)

	cleaning sync.Mutex
	mu       sync.Mutex
	fatal    error
	ended    bool
	cleanups []func()
}

// patience is how long after the end of its context a function of Run may go on.
const patience = 10 * time.Second

// Parent is what a Scope is within.
type Parent interface {
	Helper()
	Logf(format string, args ...any)
	Context() context.Context
}

// Within returns a Scope whose Context ends with that of parent, or before. Its Fatalf is fatalf,
// which ends the calling goroutine.
func Within(parent Parent, fatalf func(format string, args ...any)) *Scope {
	s := &Scope{parent: parent, fatalf: fatalf}
	s.ctx, s.cancel = context.WithCancel(parent.Context())
	return s
}

// New returns a Scope for a program that is no test. Its Context ends with ctx, or before. Its Logf
// is logf; nil writes nothing.
func New(ctx context.Context, logf func(format string, args ...any)) *Scope {
	var s *Scope
	s = Within(program{ctx, logf}, func(format string, args ...any) {
		s.mu.Lock()
		s.fatal = fmt.Errorf(format, args...)
		s.mu.Unlock()
		runtime.Goexit()
	})
	return s
}

// program is the Parent of a Scope that New has made.
type program struct {
	ctx  context.Context
	logf func(format string, args ...any)
}

func (p program) Context() context.Context { return p.ctx }

func (program) Helper() {}

func (p program) Logf(format string, args ...any) {
	if p.logf != nil {
		p.logf(format, args...)
	}
}

// Helper does nothing: Logf calls that of the parent.
func (s *Scope) Helper() {}

// Logf is for people. It is dropped after the end: package testing would panic, and a goroutine may
// have been left behind.
func (s *Scope) Logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.parent.Helper()
		s.parent.Logf(format, args...)
	}
}

// Fatalf ends the calling goroutine.
func (s *Scope) Fatalf(format string, args ...any) { s.fatalf(format, args...) }

// Context ends before the Cleanup functions run, as that of package testing does.
func (s *Scope) Context() context.Context { return s.ctx }

// Cancel ends the context, before End does.
func (s *Scope) Cancel() { s.cancel() }

// Cleanup has f called by End, last in, first out; at once after that.
func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.cleanups = append(s.cleanups, f)
	}
	s.mu.Unlock()
	if ended { // a goroutine was left behind
		f()
	}
}

// Run runs f in a goroutine of a Scope that New has made, and returns what f called Fatalf with. If
// f has not returned a while after the end of the context, Run returns an error, and f goes on.
func (s *Scope) Run(f func()) error {
	done := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { done <- returned }() // Fatalf may have ended it
		f()
		returned = true
	}()
	select {
	case returned := <-done:
		return s.verdict(returned)
	case <-s.ctx.Done():
	}
	select {
	case returned := <-done:
		return s.verdict(returned)
	case <-time.After(patience):
		return fmt.Errorf("no answer, also %v after %w", patience, context.Cause(s.ctx))
	}
}

func (s *Scope) verdict(returned bool) error {
	if returned {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}

// End ends the context, and runs the Cleanup functions, and those that they add. It returns when all
// have returned, also those that another call of End runs.
func (s *Scope) End() {
	s.cancel()
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
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
