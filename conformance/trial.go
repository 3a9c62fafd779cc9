package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/tb"
)

// row is a line of the suite's table.
type row struct {
	name    string
	promise string
	sources []string
	chance  bool       // whether it finds a violation depends on luck
	body    func(*env) // ends by returning, or as env.failf and its like do

	needs     []need
	shows     locker.Guarantee
	condition string
	alone     bool                        // it looks at the whole process
	queued    bool                        // asked only of a Locker whose Harness promises an order of waiters
	optional  bool                        // asked only of a Locker whose Harness promises what it shows
	lasts     func(Harness) time.Duration // how much longer than others it may take; nil: not at all
}

func (r row) scenario() Scenario {
	s := Scenario{
		Name: r.name, Promise: r.promise, Sources: r.sources, Deterministic: !r.chance,
		Guarantee: r.shows, Condition: r.condition, Check: r.check, alone: r.alone, busy: r.chance,
	}
	for _, n := range r.needs {
		if n.why == "" {
			s.Needs = append(s.Needs, n.name)
		}
		s.disturbs = s.disturbs || n.disturbs
	}
	return s
}

// A trial that an unlucky pause of the machine, or a loss that the contract allows, can spoil is
// repeated: only what spoils every trial is the Locker's fault.
var trials = 5

// trialsIfKnown are enough of a promise that the Harness says is broken.
const trialsIfKnown = 2

// check runs trials of the scenario until one of them says something for certain.
func (r row) check(t TB, h Harness) error {
	t.Helper()
	if missing := unmet(r.needs, h); missing != nil {
		return missing
	}
	if r.optional || r.queued || slices.ContainsFunc(r.needs, func(n need) bool { return n.name == readsWrites.name }) {
		h = h.promising(t) // see ordered, which may not wait for the process once more
	}
	if r.optional && h.Promises[r.shows].Level == locker.LevelNo {
		return Skip(fmt.Sprintf("the Harness does not promise %q", r.shows))
	}
	if r.queued && !h.hasQueue() {
		return Skip("the Harness promises no order of waiters: who waits may be in no queue")
	}
	if !h.entered {
		leave := enter(r.alone)
		defer leave()
	}
	limit := 30*time.Second + 30*h.TTL
	if r.lasts != nil {
		limit += r.lasts(h)
	}
	if _, known := h.Deviations[r.name]; known {
		return r.confirm(t, h, limit)
	}
	enough := time.Now().Add(limit / 2)
	n := h.trials()
	n.long = r.lasts != nil && *forFlag > 0
	for {
		paused, err := r.trial(t, h, limit)
		if n.add(err, paused) {
			return err
		}
		if n.enough() || time.Now().After(enough) {
			return n.verdict()
		}
		if err != nil {
			t.Logf("trial %d: %v", n.trials, err)
			time.Sleep(time.Duration(n.trials) * respite)
		}
	}
}

// respite is how much longer each time a scenario waits after a trial in doubt: what keeps the machine busy may be over by then.
var respite = 200 * time.Millisecond

// confirm looks for what the Harness says is broken. That the promise is kept after all is said only if no trial has seen
// anything.
func (r row) confirm(t TB, h Harness, limit time.Duration) error {
	t.Helper()
	n := h.trials()
	var seen error
	for n.trials < trials && n.doubts < trialsIfKnown {
		paused, err := r.trial(t, h, limit)
		if n.add(err, paused) || n.kept > 0 && r.chance {
			return err
		}
		if _, idle := errors.AsType[*idleFault](err); err != nil && !idle {
			seen = n.seen
		}
	}
	if seen == nil && n.kept == 0 { // the fault has never acted
		return n.seen
	}
	return seen
}

// thisProcess is this process: scenarios share it, but for those that look at all of it. Several Runs may go on at once.
var thisProcess sync.RWMutex

// enter waits until a scenario may use this process.
func enter(alone bool) (leave func()) {
	if alone {
		thisProcess.Lock()
		return thisProcess.Unlock
	}
	thisProcess.RLock()
	return thisProcess.RUnlock
}

// trial runs the body once, in a goroutine that is left alone if the Locker does not return.
func (r row) trial(t TB, h Harness, limit time.Duration) (paused bool, verdict error) {
	watched, began := watchMachine(), time.Now()
	e := newEnv(t, h)
	e.row = r
	e.calm = !slices.ContainsFunc(r.needs, need.fault)
	defer e.close()
	defer func() { e.saveRecord(verdict) }()
	go func() {
		defer e.end(nil) // unless the body has said something else
		r.body(e)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case verdict = <-e.verdict:
	case <-timer.C:
		verdict = fmt.Errorf("the scenario did not end within %v", limit)
	}
	if bad, ok := errors.AsType[*fatalError](verdict); ok {
		t.Fatalf("%s", bad.message)
	}
	if _, doubted := errors.AsType[*doubtful](verdict); doubted {
		time.Sleep(longEnough - time.Since(began))
		machine := watched()
		return machine.paused() || machine.overloaded(), verdict
	}
	return watched().paused(), verdict
}

// doubtful is an error that counts only if every trial ends with one.
type doubtful struct{ seen error }

func (d *doubtful) Error() string { return d.seen.Error() }

func (d *doubtful) Unwrap() error { return d.seen }

// fatalError is a Fatalf of the harness.
type fatalError struct{ message string }

func (e *fatalError) Error() string { return e.message }

// env is one trial of a scenario: what its body works with. It is the TB of what the harness makes for
// it, which ends with the trial.
type env struct {
	*tb.Scope
	h       Harness
	row     row
	verdict chan error // holds the first
	others  *sync.WaitGroup
	silence *atomic.Pointer[silence] // the last one
	asked   bool                     // whether Through acts
	reader  string                   // the party that takes shares; see readerRows
	calm    bool                     // there are no faults
	record  *history.History         // nil: the trial is not recorded

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
	e := &env{h: h, verdict: make(chan error, 1), others: &sync.WaitGroup{}, silence: &atomic.Pointer[silence]{}, ttl: h.TTL, record: newRecord()}
	e.long = max(10*h.TTL, e.lifetime(3*time.Second))
	e.prompt = max(e.long/3, time.Second)
	e.patience = 5*time.Second + 4*h.TTL
	if h.Grace {
		e.grace = 2 * e.long
	}
	e.Scope = tb.Within(t, func(format string, args ...any) {
		e.end(&fatalError{fmt.Sprintf(format, args...)})
		runtime.Goexit()
	})
	return e
}

// lifetime is d, or the next longer time that is a multiple of the harness's TTL: backends may count in no
// smaller steps.
func (e *env) lifetime(d time.Duration) time.Duration {
	if over := d % e.ttl; over > 0 {
		d += e.ttl - over
	}
	return d
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
	e.Cancel()
	within(2*time.Second, e.others.Wait)
	within(time.Minute, e.End) // servers may have to be started again
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
	e.end(e.blame(fmt.Errorf(format, args...)))
	runtime.Goexit()
}

// doubtf ends the trial: the promise is broken if it looks so every time.
func (e *env) doubtf(format string, args ...any) {
	e.end(e.blame(&doubtful{fmt.Errorf(format, args...)}))
	runtime.Goexit()
}

// skip ends the scenario.
func (e *env) skip(reason string) {
	e.end(Skip(reason))
	runtime.Goexit()
}

// spawn runs f in a goroutine that the trial's end waits for.
func (e *env) spawn(f func()) { e.others.Go(f) }

// refusing is a scope whose Fatalf is an answer, and ends the calling goroutine alone.
type refusing struct {
	TB
	why string
}

// Fatalf ends the calling goroutine.
func (r *refusing) Fatalf(format string, args ...any) {
	r.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// offer makes a party of a name or a TTL that the harness may refuse. It returns nil and the reason then.
func (e *env) offer(who, name string, ttl time.Duration) (p *party, refusal string) {
	t := &refusing{TB: e}
	made := make(chan locker.Locker, 1)
	go func() {
		defer close(made)
		made <- e.h.New(t, name, ttl)
	}()
	if l := <-made; l != nil {
		return e.using(l, who, name, ttl), ""
	}
	return nil, t.why
}
