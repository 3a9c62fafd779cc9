package conformance_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testwait"
)

// mutant is a Locker that breaks one sentence of the contract, and the scenario that is meant for
// it.
type mutant struct {
	flaw    string
	killer  string
	harness func() conformance.Harness
}

// TestMutants: each is caught by the scenario that is meant for it. Where there is no time for all,
// one of each scenario is.
func TestMutants(t *testing.T) {
	evidenceOf(t)
	// long is enough for three histories in a row, if the first two show nothing.
	all, long := mutants(), 15*time.Second
	if !testwait.Thorough() {
		t.Cleanup(conformance.Trials(2))
		all, long = oneOfEach(all), 5*time.Second
	}
	t.Cleanup(conformance.HistoriesLast(long))
	var tasks []task
	for _, m := range all {
		tasks = append(tasks, task{m.flaw, find(t, m.killer), m.harness})
	}
	done := allTried(30, tasks)
	for _, d := range again(t, done, func(seen error) bool { return seen == nil }) {
		switch {
		case d.seen == nil:
			t.Errorf("%s: lives through %q", d.name, d.scenario.Name)
		case conformance.IsSkip(d.seen):
			t.Errorf("%s: %q: %v", d.name, d.scenario.Name, d.seen)
		case strings.Contains(overload.ReplaceAllString(d.seen.Error(), ""), "in doubt: "):
			t.Errorf("%s: %q says nothing of it: %v", d.name, d.scenario.Name, d.seen)
		case idleFaults[d.name] != nil && !strings.Contains(d.seen.Error(), "your fault did nothing: Faults."+strings.Fields(d.name)[0]):
			t.Errorf("%s: %q blames the Locker: %v", d.name, d.scenario.Name, d.seen)
		case timedOut(d.seen) && !hangs[d.name]:
			t.Errorf("%s: %q did not catch it, but ran out of time: %v", d.name, d.scenario.Name, d.seen)
		default:
			t.Logf("%s\n\tkilled by %q: %v", d.name, d.scenario.Name, d.seen)
		}
	}
}

// overload is said before what was seen, if the machine was busy: that is not for sure, and it was
// seen.
var overload = regexp.MustCompile(`^in doubt: [^:]* trials[^:]*the last time: `)

// hangs are the mutants whose flaw is that a call does not return.
var hangs = map[string]bool{
	"Lock waits for ever": true, "a Driver's Release ignores contexts": true, "FencingToken asks the server": true,
}

func timedOut(seen error) bool {
	return strings.Contains(seen.Error(), "did not return within") || strings.Contains(seen.Error(), "the scenario did not end within")
}

// oneOfEach leaves one mutant for each scenario, and of the histories those that brief tells.
func oneOfEach(all []mutant) (some []mutant) {
	have := map[string]bool{}
	for _, m := range all {
		if !have[m.killer] && brief(m.killer) {
			some = append(some, m)
		}
		have[m.killer] = true
	}
	return some
}

// brief reports whether a scenario is tried where there is little time: of the random histories,
// which take long, two are.
func brief(scenario string) bool {
	return !strings.Contains(scenario, "random history") || scenario == oneHistory || strings.HasSuffix(scenario, "faults of all kinds come and go")
}

// TestEveryScenarioCanFail: a check that kills nothing may be one that cannot.
func TestEveryScenarioCanFail(t *testing.T) {
	kills := map[string]bool{}
	for _, m := range mutants() {
		kills[m.killer] = true
	}
	for _, s := range conformance.Scenarios() {
		if !kills[s.Name] {
			t.Errorf("no mutant is meant for %q", s.Name)
		}
	}
}

func find(t *testing.T, name string) conformance.Scenario {
	t.Helper()
	for _, s := range conformance.Scenarios() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario is called %q", name)
	return conformance.Scenario{}
}

func mutants() []mutant {
	var all []mutant
	for _, group := range [][]mutant{
		exclusionMutants(), contextMutants(), waitingMutants(), endMutants(), tokenMutants(),
		nameMutants(), lossMutants(), moreServerMutants(), serverMutants(), silenceMutants(),
		promiseMutants(), flawMutants(), wantedMutants(), idleMutants(), historyMutants(), counterMutants(),
	} {
		all = append(all, group...)
	}
	return all
}

// locks is a mutant whose Lockers are altered.
func locks(flaw, killer string, change func(p *patched, w *world)) mutant {
	return mutant{flaw, killer, func() conformance.Harness {
		return altered(func(_ conformance.TB, p *patched, w *world) { change(p, w) })
	}}
}
