package conformance_test

import (
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// mutant is a Locker that breaks one sentence of the contract, and the scenario that is meant for it.
type mutant struct {
	flaw    string
	killer  string
	harness func() conformance.Harness
}

func TestMutants(t *testing.T) {
	evidenceOf(t)
	t.Cleanup(conformance.HistoriesLast(15 * time.Second)) // three in a row, if the first two show nothing
	all := mutants()
	var tasks, busy []task
	for _, m := range all {
		if d := (task{m.flaw, find(t, m.killer), m.harness}); storms(d) {
			busy = append(busy, d)
		} else {
			tasks = append(tasks, d)
		}
	}
	for _, d := range append(tried(16, tasks), tried(4, busy)...) {
		switch {
		case d.seen == nil:
			t.Errorf("%s: lives through %q", d.name, d.scenario.Name)
		case conformance.IsSkip(d.seen):
			t.Errorf("%s: %q: %v", d.name, d.scenario.Name, d.seen)
		default:
			t.Logf("%s\n\tkilled by %q: %v", d.name, d.scenario.Name, d.seen)
		}
	}
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
		nameMutants(), lossMutants(), driverMutants(), silenceMutants(), naiveMutants(), outageMutants(), networkMutants(),
		promiseMutants(), historyMutants(), historyFaultMutants(), counterMutants(),
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

// become makes p use another Mutex.
func (p *patched) become(m *locker.Mutex) {
	p.Mutex, p.lock, p.tryLock, p.unlock, p.extend = m, m.Lock, m.TryLock, m.Unlock, m.Extend
	p.token, p.lost, p.deadline = m.FencingToken, m.Lost, m.Deadline
}
