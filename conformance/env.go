package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/internal/tb"
)

// env is one trial of a scenario: what its body works with. It is the TB of what the harness makes
// for it, which ends with the trial.
type env struct {
	*tb.Scope
	h        Harness
	scenario string // its name
	trial    *engine.Trial
	silence  *atomic.Pointer[silence] // the last one
	asked    bool                     // whether Through acts
	reader   string                   // the party that takes shares; see readerRows
	calm     bool                     // there are no faults
	record   *record                  // nil: the trial is not recorded
	pace     *pace
	running  *atomic.Bool // deadlines may be: a context was made, or a Locker called

	ttl      time.Duration // the harness's
	long     time.Duration // by far longer than anything but an expiry takes
	prompt   time.Duration // by far shorter than long, and longer than any pause of the machine
	patience time.Duration // after which a call is said not to return
	grace    time.Duration // see Harness.Grace; 0 for most
}

func newEnv(t TB, h Harness) *env {
	if h.operations == nil {
		h.operations = new(atomic.Int64)
	}
	trial := engine.NewTrial(t)
	e := &env{Scope: trial.Scope, trial: trial, h: h, silence: &atomic.Pointer[silence]{}, ttl: h.TTL, record: newRecord(), pace: &pace{}, running: new(atomic.Bool)}
	e.long = max(10*h.TTL, e.lifetime(3*time.Second))
	e.prompt = max(e.long/3, time.Second)
	e.patience = 5*time.Second + 4*h.TTL
	if h.Grace {
		e.grace = 2 * e.long
	}
	return e
}

// settle returns the time in which a Lock that was started has been refused and waits: the constant,
// and twice the latency of this lock.
func (e *env) settle() time.Duration {
	return min(settle+2*time.Duration(e.pace.answer.Load()), e.long/4)
}

// Context returns that of the trial. From now on deadlines may be running: see pace.
func (e *env) Context() context.Context {
	e.running.Store(true)
	return e.Scope.Context()
}

// story returns an env for one of several stories that are independent of one another.
func (e *env) story() *env {
	s := *e
	s.running = new(atomic.Bool)
	return &s
}

// lifetime is d, or the next longer time that is a multiple of the harness's TTL: backends may
// count in no smaller steps.
func (e *env) lifetime(d time.Duration) time.Duration {
	if over := d % e.ttl; over > 0 {
		d += e.ttl - over
	}
	return d
}

// end gives the trial's verdict, unless it has one.
func (e *env) end(verdict error) { e.trial.Decide(verdict) }

// close ends what the trial has begun.
func (e *env) close() { e.trial.Close() }

// failf ends the trial and the scenario: the promise is broken for certain.
func (e *env) failf(format string, args ...any) {
	e.end(e.blame(fmt.Errorf(format, args...)))
	runtime.Goexit()
}

// doubtf ends the trial: the promise is broken if it looks so every time.
func (e *env) doubtf(format string, args ...any) {
	seen := fmt.Errorf(format, args...)
	if takes := time.Duration(e.pace.answer.Load()); takes > e.ttl/2 {
		seen = fmt.Errorf("%w: a Lock of a free lock takes %v, and the TTL is %v; a longer one would show more. Seen: %w", engine.ErrInDoubt, takes, e.ttl, seen)
	}
	e.end(e.blame(&engine.Doubt{Seen: seen}))
	runtime.Goexit()
}

// skip ends the scenario.
func (e *env) skip(reason string) {
	e.end(skipped(reason))
	runtime.Goexit()
}

// blame returns what a trial that has seen a breach is to say: if a backend answers that should be
// silent, that is the fault's.
func (e *env) blame(seen error) error {
	if _, known := errors.AsType[*engine.IdleFault](seen); known {
		return seen
	}
	if s := e.silence.Load(); s != nil {
		if err := s.idle(settle); err != nil {
			return &engine.Doubt{Seen: err}
		}
	}
	return seen
}

// spawn runs f in a goroutine that the trial's end waits for.
func (e *env) spawn(f func()) { e.trial.Spawn(f) }

// together runs stories side by side. The trial's end waits for them, too.
func (e *env) together(stories ...func()) { e.trial.Together(stories...) }

// scoped returns an env for one history of several. What is made for it ends with tidy.
func (e *env) scoped() (_ *env, tidy func()) {
	inner := e.story()
	inner.Scope = tb.Within(e, e.Fatalf)
	tidy = func() { engine.Within(time.Minute, inner.End) }
	e.Cleanup(tidy)
	return inner, tidy
}

// errStop is the cause that a scenario gives when it cancels.
var errStop = errors.New("the scenario's own reason to stop")
