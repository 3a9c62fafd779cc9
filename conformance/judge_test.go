package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
)

// Whatever the machine was to blame for.
func TestExamine_saysHowFewHoldsItSaw(t *testing.T) {
	few := scenario.Row{Name: "few", Body: func(e *party.Env) { e.Pace.Holds.Store(32); e.Pace.Few.Store(true) }}
	r := Examine(t, scenarioOf(few), Harness{TTL: time.Millisecond})
	assert.NotEqual(t, Broken, r.Outcome)
	assert.Contains(t, r.String(), "32 holds")
}

func TestUnknownDeviationsAreNamed(t *testing.T) {
	scenarios := Scenarios()
	got := unknown(map[string]string{"no such": "?", scenarios[3].Name: "by design", "another": "?"}, scenarios)
	assert.Equal(t, []string{"another", "no such"}, got)
}

func TestContradictionsAreNamed(t *testing.T) {
	s := Scenario{Name: "two at once", Guarantee: locker.Exclusive}
	for level, says := range map[locker.Level]int{locker.LevelYes: 1, locker.LevelConditional: 0, locker.LevelNo: 0} {
		h := Harness{
			Promises:   locker.Guarantees{locker.Exclusive: {Level: level}},
			Deviations: map[string]string{s.Name: "by design"},
		}
		scenarios := []Scenario{s, {Name: "another", Guarantee: locker.Exclusive}}
		assert.Len(t, contradictions(h, scenarios), says)
		h.Deviations, h.Sometimes = nil, h.Deviations
		assert.Len(t, contradictions(h, scenarios), says, "of what is broken sometimes")
	}
}

// What proves two holders speaks of exclusion. A lock that is broken so is not said to exclude.
func TestScenarios_ofLateRequestsShowExclusion(t *testing.T) {
	of := map[string]locker.Guarantee{}
	for _, s := range Scenarios() {
		of[s.Name] = s.Guarantee
	}
	for _, name := range []string{
		"an Unlock that arrives late leaves the new hold alone",
		"an Unlock that arrives late leaves the next hold of the same Locker alone",
		"an Extend that arrives late leaves the new hold alone, and revives nothing",
		"an Unlock of a share that arrives late leaves the writer alone",
		"an Extend of a share that arrives late leaves the writer alone",
	} {
		assert.Equal(t, locker.Exclusive, of[name], name)
	}
}

func TestScenarios_haveUniqueNamesAndPromises(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		require.NotEmpty(t, s.Name)
		assert.Regexp(t, `^[A-Z].*\.$`, s.Promise, "promise of %q: a sentence", s.Name)
		assert.False(t, seen[s.Name], "two scenarios are called %q", s.Name)
		assert.NotContains(t, s.Name, "/", "the name is that of a subtest")
		seen[s.Name] = true
	}
}

// A scenario that inspects the whole process waits until no other one runs, and others wait for it.
func TestTrial_alone(t *testing.T) {
	h := Harness{TTL: time.Millisecond}
	var others, alone atomic.Int32
	wait := make(chan struct{})
	first := scenario.Row{Body: func(*party.Env) {
		others.Add(1)
		<-wait
		assert.Zero(t, alone.Load(), "one that is alone has begun beside another")
		others.Add(-1)
	}}
	last := scenario.Row{Alone: true, Body: func(*party.Env) {
		alone.Add(1)
		assert.Zero(t, others.Load(), "another is under way")
		alone.Add(-1)
	}}
	var wg sync.WaitGroup
	check := func(r scenario.Row) { wg.Go(func() { assert.NoError(t, r.Check(t, h.inner(""))) }) }
	check(first)
	require.Eventually(t, func() bool { return others.Load() == 1 }, 10*time.Second, time.Millisecond)
	check(last)
	time.AfterFunc(20*time.Millisecond, func() { close(wait) })
	wg.Wait()
	check(scenario.Row{Body: func(*party.Env) { assert.Zero(t, alone.Load()) }})
	wg.Wait()
}

// Nor does it see what another Run has begun and not yet got on with.
func TestRun_besideAnother(t *testing.T) {
	h := Harness{TTL: time.Millisecond, New: func(TB, string, time.Duration) locker.Locker { return nil }}
	looks := scenario.Row{Name: "looks", Alone: true, Body: func(e *party.Env) {
		before := goleak.IgnoreCurrent()
		time.Sleep(5 * time.Millisecond)
		if err := goleak.Find(before); err != nil {
			e.Failf("%v", err)
		}
	}}
	idles := scenario.Row{Name: "idles", Body: func(*party.Env) { time.Sleep(time.Millisecond) }}
	for _, r := range []scenario.Row{looks, idles, idles} {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			run(t, h, slices.Repeat([]Scenario{scenarioOf(r)}, 20))
		})
	}
}

// Scenarios that wait do so side by side. None is under way while another disturbs the servers.
func TestRun_sideBySide(t *testing.T) {
	h := Harness{TTL: time.Millisecond, New: func(TB, string, time.Duration) locker.Locker { return nil }}
	h.Faults.StopServer = func(TB) func() { return func() {} }
	var waiting, disturbing atomic.Int32
	together := make(chan struct{})
	waits := scenario.Row{Name: "waits", Body: func(*party.Env) {
		defer waiting.Add(-1)
		if waiting.Add(1) == 3 {
			close(together)
		}
		select {
		case <-together:
		case <-time.After(10 * time.Second):
			t.Error("three that wait are not under way at once")
		}
	}}
	disturbs := scenario.Row{Name: "disturbs", Needs: []need.Need{need.Stops}, Body: func(*party.Env) {
		defer disturbing.Add(-1)
		assert.Equal(t, int32(1), disturbing.Add(1), "how many disturb the servers at once")
		assert.Zero(t, waiting.Load(), "another is under way")
		time.Sleep(time.Millisecond)
	}}
	var all []Scenario
	for _, r := range []scenario.Row{disturbs, waits, disturbs, waits, waits} {
		all = append(all, scenarioOf(r))
	}
	run(t, h, all)
	select {
	case <-together:
	default:
		t.Error("no three were under way at once")
	}
}

// What is said of a promise, from the verdicts of its trials, and what the Harness knows of it.
func TestExamine_judges(t *testing.T) {
	before, beforeLong := engine.Respite, engine.LongEnough
	engine.Respite, engine.LongEnough = time.Millisecond, time.Millisecond
	defer func() { engine.Respite, engine.LongEnough = before, beforeLong }()
	errSeen := errors.New("two at once")
	doubt := &engine.Doubt{Seen: errSeen}
	nothing := &engine.Doubt{Seen: fmt.Errorf("%w: two at once, or none", engine.ErrInDoubt)}
	skip := engine.Skipped("no server")
	says := map[Outcome][]string{
		Broken: {"One at a time.", "two at once"}, Undecided: {"undecided"}, Skipped: {"no server"},
		Known: {"One at a time.", "two at once", "by design"}, Unseen: {"by design", "not seen"},
		Stale: {"One at a time.", "by design", "kept"},
	}
	examine := func(h Harness, chance bool, verdicts ...error) Result {
		h.TTL = time.Millisecond
		ran := 0
		r := scenario.Row{Name: "s", Promise: "One at a time.", Chance: chance, Body: func(e *party.Env) {
			ran++
			e.Decide(verdicts[min(ran, len(verdicts))-1])
		}}
		return Examine(t, scenarioOf(r), h)
	}
	listed := map[string]string{"s": "by design"}
	for _, c := range []struct {
		what           string
		h              Harness
		luck           bool // it takes luck to see a breach
		allowed        int
		verdicts       []error
		want           Outcome
		trials, doubts int
	}{
		{"kept", Harness{}, false, 0, []error{nil}, Kept, 1, 0},
		{"kept in most", Harness{}, false, 4, []error{doubt, doubt, nil}, Kept, 5, 2},
		{"kept in most, where none may be in doubt", Harness{}, false, 0, []error{doubt, doubt, nil}, Broken, 5, 2},
		{"broken in each", Harness{}, false, 4, []error{doubt}, Broken, 5, 5},
		{"says nothing in each", Harness{}, false, 4, []error{nothing}, Undecided, 5, 5},
		{"says nothing in some, and is never kept", Harness{}, false, 4, []error{nothing, doubt}, Undecided, 5, 5},
		{"says nothing once, and is kept", Harness{}, false, 4, []error{nothing, nil}, Kept, 5, 1},
		{"broken for certain, at last", Harness{}, false, 4, []error{doubt, errSeen}, Broken, 2, 1},
		{"known, and kept", Harness{Deviations: listed}, false, 4, []error{nil}, Stale, 5, 0},
		{"known, and sometimes too, and kept", Harness{Deviations: listed, Sometimes: listed}, false, 4, []error{nil}, Stale, 5, 0},
		{"known, and seen", Harness{Deviations: listed}, false, 0, []error{nil, doubt}, Known, 3, 2},
		{"known to be broken sometimes, and seen", Harness{Sometimes: listed}, false, 4, []error{doubt, nil}, Known, 5, 1},
		{"known to be broken sometimes, and not seen", Harness{Sometimes: listed}, false, 4, []error{nil}, Unseen, 1, 0},
		{"known, by luck, and not seen", Harness{Deviations: listed}, true, 4, []error{nil}, Unseen, 1, 0},
		{"known, by luck, and seen", Harness{Deviations: listed}, true, 4, []error{errSeen}, Known, 1, 0},
		{"known, and says nothing", Harness{Deviations: listed}, false, 4, []error{nothing}, Unseen, 2, 2},
		{"cannot run", Harness{}, false, 4, []error{skip}, Skipped, 1, 0},
		{"known, and cannot run", Harness{Deviations: listed}, false, 4, []error{skip}, Skipped, 1, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			defer Doubts(c.allowed)()
			r := examine(c.h, c.luck, c.verdicts...)
			for range 20 { // a pause of the machine changes the outcome
				if r.Paused == 0 {
					break
				}
				r = examine(c.h, c.luck, c.verdicts...)
			}
			assert.Equal(t, c.want, r.Outcome, "%+v", r)
			assert.Equal(t, c.trials, r.Trials, "trials")
			assert.Equal(t, c.doubts, r.Doubts, "in doubt")
			assert.Zero(t, r.Paused, "the machine paused each time: this test says nothing then")
			if c.doubts > 0 {
				assert.Contains(t, r.Seen, "two at once")
			}
			assert.Equal(t, c.want == Broken || c.want == Undecided || c.want == Stale, r.Outcome.failed())
			for _, part := range says[c.want] {
				assert.Contains(t, r.String(), part)
			}
			assert.Equal(t, c.want == Kept && c.doubts == 0, r.String() == "", "nothing to say of what is kept")
		})
	}
}
