// Package testwait has functions by which tests wait for conditions, not for time to pass, and decides which tests run in
// `make nightly` alone.
package testwait

import (
	"context"
	"io"
	"os"
	"testing"
	"time"
)

const tick = 2 * time.Millisecond

// Patience is how long a test waits before it fails: longer than the machine is ever busy, and shorter than whatever else would
// bring about what is waited for.
type Patience time.Duration

// Until returns when condition holds, which may also be asked once more than needed.
func (p Patience) Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Duration(p)); !condition(); time.Sleep(tick) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not true: %s", time.Duration(p), what)
		}
	}
}

// Result is the error that a function of [Go] returned.
func (p Patience) Result(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Duration(p)):
		t.Fatalf("not done after %v", time.Duration(p))
		return nil
	}
}

// Go runs f, and returns where its error will come.
func Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Context is the test's, and ends after d.
func Context(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Thorough reports whether the tests are those of `make nightly`, which sets LOCKER_NIGHTLY, or the shorter ones of `make test`.
func Thorough() bool { return os.Getenv("LOCKER_NIGHTLY") != "" }

// Exhaustive reports whether explorations and simulations go as far as they ever do, as in `make nightly PART=models`, which sets
// LOCKER_EXHAUSTIVE.
func Exhaustive() bool { return Thorough() && os.Getenv("LOCKER_EXHAUSTIVE") != "" }

// LeftToModels skips a test of one goroutine in the parts of `make nightly` that run under the race detector.
func LeftToModels(t testing.TB) {
	t.Helper()
	if Thorough() && !Exhaustive() {
		t.Skipf("left to make nightly PART=models, without the race detector: it has one goroutine")
	}
}

// OnlyNightly skips a test that `make test` leaves out, because of what another one shows already.
func OnlyNightly(t testing.TB, because string) {
	t.Helper()
	if !Thorough() {
		t.Skipf("left to make nightly, which sets LOCKER_NIGHTLY=1: %s", because)
	}
}

// Closed returns v, which is closed when the test of the function's argument ends. An err ends that
// test at once.
func Closed[T io.Closer](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = v.Close() })
		return v
	}
}
