// Package engine runs the trials of a scenario, each with a limit, and says what they come to: the
// promise is kept, broken, or nobody can tell. It knows neither locks nor scenarios.
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

// Trial is one run of a scenario: a scope for what is made for it, and its verdict.
type Trial struct {
	*tb.Scope // a Fatalf of it is a verdict

	verdict chan error // holds the first
	others  sync.WaitGroup
	allowed atomic.Int64 // nanoseconds on top of the limit
}

// NewTrial returns one within parent. Close ends it.
func NewTrial(parent tb.Parent) *Trial {
	t := &Trial{verdict: make(chan error, 1)}
	t.Scope = tb.Within(parent, func(format string, args ...any) {
		t.Decide(&Fatal{fmt.Sprintf(format, args...)})
		runtime.Goexit()
	})
	return t
}

// Allow adds d to the limit of the trial: what is under way is not the Locker's.
func (t *Trial) Allow(d time.Duration) { t.allowed.Add(int64(d)) }

// Run runs body in a goroutine, which is left alone if it gives no verdict within limit. That is in
// doubt: a call of the Locker that does not return has a limit, and a verdict, of its own. paused
// reports whether the machine paused: that may excuse what is in doubt, or have hidden a flaw.
func (t *Trial) Run(limit time.Duration, body func()) (paused bool, verdict error) {
	watched, began := watchMachine(), time.Now()
	go func() {
		defer t.Decide(nil) // unless the body has said something else
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
				verdict = &Doubt{fmt.Errorf("the scenario did not end within %v", limit)}
			}
		}
	}
	if _, doubted := errors.AsType[*Doubt](verdict); doubted {
		time.Sleep(LongEnough - time.Since(began))
		machine := watched()
		return machine.paused() || machine.overloaded(), verdict
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

// Close ends what the trial has begun. Each step is bounded: the Locker may hang.
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
