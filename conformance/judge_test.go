package conformance

import (
	"errors"
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
)

func TestJudge(t *testing.T) {
	broken := errors.New("two at once")
	certain := Scenario{Name: "s", Promise: "One at a time.", Deterministic: true}
	lucky := Scenario{Name: "s", Promise: "One at a time."}
	for _, c := range []struct {
		what     string
		scenario Scenario
		seen     error
		deviates bool
		failed   bool
		says     []string
	}{
		{what: "kept", scenario: certain},
		{"broken", certain, broken, false, true, []string{"One at a time.", "two at once"}},
		{"cannot run", certain, skipped("no server"), false, false, []string{"no server"}},
		{"known deviation, seen", certain, broken, true, false, []string{"One at a time.", "two at once", "by design"}},
		{"known deviation, gone", certain, nil, true, true, []string{"One at a time.", "by design", "kept"}},
		{"known deviation, cannot run", certain, skipped("no server"), true, false, []string{"no server"}},
		{"known deviation of luck, not seen", lucky, nil, true, false, []string{"by design", "not seen"}},
		{"known deviation of luck, seen", lucky, broken, true, false, []string{"by design", "two at once"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := judge(c.scenario, engine.Tally{}, c.seen, c.deviates, "by design")
			says := r.String()
			assert.Equal(t, c.failed, r.Outcome.failed())
			for _, part := range c.says {
				assert.Contains(t, says, part)
			}
			if c.says == nil {
				assert.Empty(t, says, "nothing to say of what is kept")
			}
		})
	}
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
		assert.NotEmpty(t, s.sources, "sources of %q", s.Name)
		assert.False(t, seen[s.Name], "two scenarios are called %q", s.Name)
		assert.NotContains(t, s.Name, "/", "the name is that of a subtest")
		seen[s.Name] = true
	}
}

// Who looks at the whole process waits until no other trial is under way, and others wait for that one.
func TestTrial_alone(t *testing.T) {
	h := Harness{TTL: time.Millisecond}
	var others, alone atomic.Int32
	wait := make(chan struct{})
	first := row{body: func(*env) {
		others.Add(1)
		<-wait
		assert.Zero(t, alone.Load(), "one that is alone has begun beside another")
		others.Add(-1)
	}}
	last := row{alone: true, body: func(*env) {
		alone.Add(1)
		assert.Zero(t, others.Load(), "another is under way")
		alone.Add(-1)
	}}
	var wg sync.WaitGroup
	check := func(r row) { wg.Go(func() { assert.NoError(t, r.check(t, h)) }) }
	check(first)
	require.Eventually(t, func() bool { return others.Load() == 1 }, 10*time.Second, time.Millisecond)
	check(last)
	time.AfterFunc(20*time.Millisecond, func() { close(wait) })
	wg.Wait()
	check(row{body: func(*env) { assert.Zero(t, alone.Load()) }})
	wg.Wait()
}

// Nor does it see what another Run has begun and not yet got on with.
func TestRun_besideAnother(t *testing.T) {
	h := Harness{TTL: time.Millisecond, New: func(TB, string, time.Duration) locker.Locker { return nil }}
	looks := row{name: "looks", alone: true, body: func(e *env) {
		before := goleak.IgnoreCurrent()
		time.Sleep(5 * time.Millisecond)
		if err := goleak.Find(before); err != nil {
			e.failf("%v", err)
		}
	}}
	idles := row{name: "idles", body: func(*env) { time.Sleep(time.Millisecond) }}
	for _, r := range []row{looks, idles, idles} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			run(t, h, slices.Repeat([]Scenario{r.scenario()}, 20))
		})
	}
}

// Scenarios that wait do so side by side. None is under way while another disturbs the servers.
func TestRun_sideBySide(t *testing.T) {
	h := Harness{TTL: time.Millisecond, New: func(TB, string, time.Duration) locker.Locker { return nil }}
	h.Faults.StopServer = func(TB) func() { return func() {} }
	var waiting, disturbing atomic.Int32
	together := make(chan struct{})
	waits := row{name: "waits", body: func(*env) {
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
	disturbs := row{name: "disturbs", needs: []need{stops}, body: func(*env) {
		defer disturbing.Add(-1)
		assert.Equal(t, int32(1), disturbing.Add(1), "how many disturb the servers at once")
		assert.Zero(t, waiting.Load(), "another is under way")
		time.Sleep(time.Millisecond)
	}}
	var all []Scenario
	for _, r := range []row{disturbs, waits, disturbs, waits, waits} {
		all = append(all, r.scenario())
	}
	run(t, h, all)
	select {
	case <-together:
	default:
		t.Error("no three were under way at once")
	}
}
