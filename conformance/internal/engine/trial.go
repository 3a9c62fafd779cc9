// Package engine runs the trials of a scenario, each with a time limit, and judges them: the
// promise is kept, broken, or undecided. It knows neither locks nor scenarios.
package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/tb"
)

// Trial is one run of a scenario: a scope for its resources, and its verdict.
type Trial struct {
	*tb.Scope // a Fatalf of it is a verdict

	verdict chan error // holds the first
	others  sync.WaitGroup
	allowed atomic.Int64 // nanoseconds on top of the limit
}

// NewTrial returns a Trial within parent. Close ends it.
func NewTrial(parent tb.Parent) *Trial {
	t := &Trial{verdict: make(chan error, 1)}
	t.Scope = tb.Within(parent, func(format string, args ...any) {
		t.Decide(&Fatal{fmt.Sprintf(format, args...)})
		runtime.Goexit()
	})
	return t
}

// Allow adds d to the limit of the trial, for work that is not the Locker's.
func (t *Trial) Allow(d time.Duration) { t.allowed.Add(int64(d)) }

// Run runs body in a goroutine, which it abandons if there is no verdict within limit. That says
// nothing: a call of the Locker that does not return has a limit, and a verdict, of its own. paused
// reports whether the machine paused, which may excuse a doubt, or have hidden a flaw.
func (t *Trial) Run(limit time.Duration, body func()) (paused bool, verdict error) {
	watched, began := watchMachine(), time.Now()
	go func() {
		defer t.Decide(nil) // unless the body has given a verdict
		body()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for waits := true; waits; {
		select {
		case verdict = <-t.verdict:
			waits = false
		case <-timer.C:
			left := limit + time.Duration(t.allowed.Load()) - time.Since(began)
			if waits = left > 0; waits {
				timer.Reset(left)
			} else {
				verdict = &Doubt{fmt.Errorf("%w: the scenario did not end within %v", ErrInDoubt, limit)}
			}
		}
	}
	unless, depends := errors.AsType[*Unless](verdict)
	if _, doubted := errors.AsType[*Doubt](verdict); doubted || depends {
		time.Sleep(LongEnough - time.Since(began))
		machine := watched()
		busy := machine.paused() || machine.overloaded()
		if depends {
			verdict = unless.on(busy)
		}
		return busy, verdict
	}
	return watched().paused(), verdict
}

// Decide gives the trial's verdict, unless it has one.
func (t *Trial) Decide(verdict error) {
	select {
	case t.verdict <- verdict:
	default:
	}
}

// Spawn runs f in a goroutine that the trial's end waits for.
func (t *Trial) Spawn(f func()) { t.others.Go(f) }

// Together runs stories side by side. The trial's end waits for them, too.
func (t *Trial) Together(stories ...func()) {
	var wg sync.WaitGroup
	for _, story := range stories {
		wg.Add(1)
		t.Spawn(func() {
			defer wg.Done()
			story()
		})
	}
	wg.Wait()
}

// Close ends everything that the trial has begun. Each step is bounded: the Locker may hang.
func (t *Trial) Close() {
	t.Cancel()
	Within(2*time.Second, t.others.Wait)
	Within(time.Minute, t.End) // servers may have to be started again
}

// Within waits for f, and no longer than limit.
func Within(limit time.Duration, f func()) {
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

// Doubt is an error that counts only if every trial ends with one, apart from trials in which the
// machine paused; see Tally.
type Doubt struct{ Seen error }

// Error returns the message of Seen.
func (d *Doubt) Error() string { return d.Seen.Error() }

// Unwrap returns Seen.
func (d *Doubt) Unwrap() error { return d.Seen }

// Unless is a verdict that depends on the machine. Seen is in doubt if the machine paused or was
// overloaded, for then it may be to blame. Otherwise Quiet is the verdict.
type Unless struct{ Quiet, Seen error }

// Error returns the message of Seen.
func (u *Unless) Error() string { return u.Seen.Error() }

// on returns the verdict of a trial on a machine that was busy, or not.
func (u *Unless) on(busy bool) error {
	if busy {
		return &Doubt{u.Seen}
	}
	return u.Quiet
}

// ErrInDoubt marks the Doubt of an inconclusive trial: for example, too few faults hit a history,
// or the checker could not decide. If all trials end so the outcome is Undecided. No deviation of
// the backend explains it.
var ErrInDoubt = errors.New("in doubt")

// Fatal is a Fatalf of the harness.
type Fatal struct{ Message string }

// Error is the message.
func (f *Fatal) Error() string { return f.Message }

// IdleFault is a fault that did nothing. It blames the Harness, and no deviation of the backend
// explains it.
type IdleFault struct{ field, seen string }

// Idle returns the error of a fault that did nothing. Field is that of Faults.
func Idle(field, format string, args ...any) error {
	return &IdleFault{field, fmt.Sprintf(format, args...)}
}

// Error describes the step and the observation.
func (f *IdleFault) Error() string {
	return fmt.Sprintf("your fault did nothing: Faults.%s: %s", f.field, f.seen)
}

// Skip says why a scenario could not run.
type Skip struct{ Reason string }

// Skipped returns a Skip.
func Skipped(reason string) error { return &Skip{reason} }

// Error is the reason.
func (s *Skip) Error() string { return "skipped: " + s.Reason }

// IsSkip reports whether err is a Skip.
func IsSkip(err error) bool {
	_, ok := errors.AsType[*Skip](err)
	return ok
}
