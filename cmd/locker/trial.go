package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// trial is the conformance.TB of one scenario.
type trial struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	fatal    string
	cleanups []func()
}

func newTrial(ctx context.Context) *trial {
	t := &trial{}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// Helper does nothing: there are no lines of test code to show.
func (t *trial) Helper() {}

// Logf does nothing: it is about trials that are repeated.
func (t *trial) Logf(string, ...any) {}

// Context ends before the Cleanup functions run.
func (t *trial) Context() context.Context { return t.ctx }

// Fatalf ends the calling goroutine.
func (t *trial) Fatalf(format string, args ...any) {
	t.mu.Lock()
	t.fatal = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *trial) why() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fatal
}

// Cleanup has f called at the end, last in, first out.
func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// trialPatience is how long after the end of its context a trial may go on: the program under test
// may not answer.
var trialPatience = 10 * time.Second

// run runs f, and returns what it called Fatalf with. It leaves f alone if that does not return
// though its context has ended.
func (t *trial) run(f func()) error {
	done := make(chan bool, 1)
	go func() {
		ended := false
		defer func() { done <- ended }() // Fatalf may have ended it
		f()
		ended = true
	}()
	select {
	case ended := <-done:
		return t.verdict(ended)
	case <-t.ctx.Done():
	}
	select {
	case ended := <-done:
		return t.verdict(ended)
	case <-time.After(trialPatience):
		return fmt.Errorf("no answer, also %v after %w", trialPatience, context.Cause(t.ctx))
	}
}

func (t *trial) verdict(ended bool) error {
	if ended {
		return nil
	}
	return errors.New(t.why())
}

// end runs the Cleanup functions, and those that they add.
func (t *trial) end() {
	t.cancel()
	for {
		t.mu.Lock()
		last := len(t.cleanups) - 1
		if last < 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.mu.Unlock()
		f()
	}
}
