// Package party has the environment of one trial, and parties: Lockers under test, each with its
// role in the scenario.
package party

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/tb"
)

// Env is the environment of one trial of a scenario. It is the TB for everything that the harness
// makes for the trial, and that ends with it.
type Env struct {
	*tb.Scope     // of the trial, or of a part of it
	*engine.Trial // gives the verdict
	Harness       harness.Harness
	Scenario      string                   // its name
	Silence       *atomic.Pointer[Silence] // the last one
	Asked         bool                     // Through has been checked
	Reader        string                   // the party that takes shares; see readwrite.Readers
	Calm          bool                     // there are no faults
	Record        *Record                  // nil: the trial is not recorded
	Pace          *Pace
	running       *atomic.Bool // deadlines may be: a context was made, or a Locker called

	TTL      time.Duration // the harness's
	Long     time.Duration // by far longer than anything but an expiry takes
	Prompt   time.Duration // by far shorter than long, and longer than any pause of the machine
	Patience time.Duration // after which a call is said not to return
	Grace    time.Duration // see Harness.Grace; 0 for most
}

// NewEnv returns the Env of a new trial. Close ends it.
func NewEnv(t harness.TB, h harness.Harness) *Env {
	if h.Operations == nil {
		h.Operations = new(atomic.Int64)
	}
	trial := engine.NewTrial(t)
	e := &Env{
		Scope: trial.Scope, Trial: trial, Harness: h, TTL: h.TTL, Record: newRecord(), Pace: &Pace{},
		Silence: &atomic.Pointer[Silence]{}, running: new(atomic.Bool),
	}
	e.Long = max(10*h.TTL, e.Lifetime(3*time.Second))
	e.Prompt = max(e.Long/3, time.Second)
	e.Patience = 5*time.Second + 4*h.TTL
	if h.Grace {
		e.Grace = 2 * e.Long
	}
	return e
}

// Settle returns the time after which a started Lock should be waiting: the constant Settle plus
// twice the latency of this lock.
func (e *Env) Settle() time.Duration {
	return min(Settle+2*time.Duration(e.Pace.Answer.Load()), e.Long/4)
}

// Context returns the trial's context. From now on deadlines may be running: see Pace.
func (e *Env) Context() context.Context {
	e.running.Store(true)
	return e.Scope.Context()
}

// Making is an Env for the functions of a Harness: what they do with its context, as to connect, sets
// no deadline.
type Making struct{ *Env }

// Context returns the trial's context.
func (m Making) Context() context.Context { return m.Scope.Context() }

// Story returns an env for one of several stories that are independent of one another.
func (e *Env) Story() *Env {
	s := *e
	s.running = new(atomic.Bool)
	return &s
}

// Lifetime rounds d up to a multiple of the harness's TTL: backends may not support smaller steps.
func (e *Env) Lifetime(d time.Duration) time.Duration {
	if over := d % e.TTL; over > 0 {
		d += e.TTL - over
	}
	return d
}

// Failf ends the trial and the scenario: the promise is broken for certain.
func (e *Env) Failf(format string, args ...any) {
	e.Decide(e.blame(fmt.Errorf(format, args...)))
	runtime.Goexit()
}

// Doubtf ends the trial: the promise is broken if it looks so every time.
func (e *Env) Doubtf(format string, args ...any) {
	seen := fmt.Errorf(format, args...)
	if takes := time.Duration(e.Pace.Answer.Load()); takes > e.TTL/2 {
		seen = fmt.Errorf("%w: a Lock of a free lock takes %v, and the TTL is %v; a longer one "+
			"would show more. Seen: %w", engine.ErrInDoubt, takes, e.TTL, seen)
	}
	e.Decide(e.blame(&engine.Doubt{Seen: seen}))
	runtime.Goexit()
}

// Skip ends the scenario.
func (e *Env) Skip(reason string) {
	e.Decide(engine.Skipped(reason))
	runtime.Goexit()
}

// blame returns the verdict of a trial that has seen a breach: if a backend that should be silent
// answers, the fault is to blame.
func (e *Env) blame(seen error) error {
	if _, known := errors.AsType[*engine.IdleFault](seen); known {
		return seen
	}
	if s := e.Silence.Load(); s != nil {
		if err := s.Idle(e.Prompt); err != nil { // a busy machine answers late
			return &engine.Doubt{Seen: err}
		}
	}
	return seen
}

// Scoped returns an env for one history of several. What is made for it ends with tidy.
func (e *Env) Scoped() (_ *Env, tidy func()) {
	inner := e.Story()
	inner.Scope = tb.Within(e, e.Fatalf)
	tidy = func() { engine.Within(time.Minute, inner.End) }
	e.Cleanup(tidy)
	return inner, tidy
}

// ErrStop is the cause that a scenario gives when it cancels.
var ErrStop = errors.New("the scenario's own reason to stop")

// Relies ends the trial in doubt if err, which says that a fault did nothing, is not nil.
func (e *Env) Relies(err error) {
	if err != nil {
		e.Doubtf("%w", err)
	}
}

// Certainly fails the scenario if err, which says that a fault did nothing, is not nil.
func (e *Env) Certainly(err error) {
	if err != nil {
		e.Failf("%w", err)
	}
}

// Silence is a period in which the backend must not answer.
type Silence struct {
	Field  string
	Broken chan struct{} // closed if it answered

	Began atomic.Bool // no answer came for a while, or an error did
	Over  atomic.Bool // the fault is about to be undone
}

// Idle returns an error if the backend has answered in the silence, or does so within d.
func (s *Silence) Idle(d time.Duration) error {
	if s.Over.Load() {
		d = 0
	}
	select {
	case <-s.Broken:
	case <-time.After(d):
	}
	select { // both may have been ready
	case <-s.Broken:
		return engine.Idle(s.Field, "it had returned, and was not undone yet, and a Locker locks and unlocks")
	default:
		return nil
	}
}

// Pace has the latencies that a trial has measured. The start-up time of a program says nothing of
// its lock. So a trial in which a program started slowly while deadlines were running is discarded,
// and repeated with the programs that it has started.
type Pace struct {
	Answer atomic.Int64 // ns of the fastest uncontended Lock; 0: there was none
	Holds  atomic.Int64 // holds in a contention; 0: there was none
	Few    atomic.Bool  // the contention saw too few holds
	late   atomic.Int64 // ns of the latest slow start while deadlines were running; 0: none
}

// How much slower the start of a program may be.
const (
	promptly   = Settle / 2 // of a start while deadlines are running; a longer one is slow
	Rehearsals = 3          // trials at most, until one is not discarded
)

// Enough returns nil unless a contention, on a busy machine, had too few holds to show a rare
// breach.
func (p *Pace) Enough() error {
	if !p.Few.Load() {
		return nil
	}
	return &engine.Unless{Seen: fmt.Errorf("%w: only %d holds were seen, too few to find one in "+
		"500 that is not exclusive", engine.ErrInDoubt, p.Holds.Load())}
}

// Rehearsed returns the verdict of a discarded trial, or nil.
func (p *Pace) Rehearsed() error {
	late := time.Duration(p.late.Load())
	if late == 0 {
		return nil
	}
	return &engine.Doubt{Seen: fmt.Errorf("%w: a program took %v to start, while a Locker waited",
		engine.ErrInDoubt, late.Round(time.Millisecond))}
}

// Settle gives a fast Lock that was started the time to ask, be refused and wait. See Env.Settle.
const Settle = 100 * time.Millisecond

// Pause is how late this machine may run a timer in most of a few trials.
const Pause = 200 * time.Millisecond

// Coarse is how long after its TTL a hold may expire.
const Coarse = history.Coarse

// Drift is what the contract takes off a TTL for clocks that run at different speeds.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Slack is how late after ttl a waiter may get the lock of a holder that has crashed.
func Slack(ttl time.Duration) time.Duration { return max(800*time.Millisecond, ttl/2) }

// HalfMinute is a little longer than the time that people think long enough for anything.
const HalfMinute = 32 * time.Second

// SomeSeconds is how long a random history takes unless a flag says otherwise, and the backend is
// slow.
var SomeSeconds = 3 * time.Second

// SleepUntil is a sleep that ctx ends.
func SleepUntil(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// UpTo is a random duration.
func UpTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}
