package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/tb"
	_ "github.com/go-locker/locker/memory"
)

// try puts h through one scenario, outside of any test: it may fail. It returns what was seen, or
// what Fatalf said.
func try(s conformance.Scenario, h conformance.Harness) (seen error) {
	t := tb.New(context.Background(), nil)
	defer t.End()
	if err := t.Run(func() { seen = s.Check(t, h) }); err != nil {
		return fmt.Errorf("Fatalf: %w", err)
	}
	return seen
}

// task is a scenario to be tried on a harness of its own.
type task struct {
	name     string
	scenario conformance.Scenario
	harness  func() conformance.Harness
}

type outcome struct {
	task
	seen error
}

// tried tries all, so many at a time.
func tried(atOnce int, tasks []task) []outcome {
	done := make([]outcome, len(tasks))
	run := func(i int) {
		h := tasks[i].harness()
		done[i] = outcome{tasks[i], try(tasks[i].scenario, h)}
		if h.Program != nil {
			h.Program.Pool.End()
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range tasks {
		slots <- struct{}{}
		wg.Go(func() {
			run(i)
			<-slots
		})
	}
	wg.Wait()
	return done
}

// allTried tries all: many at a time of those that wait, at the same time few of those that keep
// the machine busy, and at last the one that counts goroutines, which needs the process for itself.
func allTried(atOnce int, tasks []task) []outcome {
	var waiting, busy, alone []task
	for _, t := range tasks {
		switch {
		case t.scenario.Name == noLeak:
			alone = append(alone, t)
		case manyClients(t):
			busy = append(busy, t)
		default:
			waiting = append(waiting, t)
		}
	}
	var crowded []outcome
	var wg sync.WaitGroup
	wg.Go(func() { crowded = tried(3, busy) })
	done := tried(atOnce, waiting)
	wg.Wait()
	return slices.Concat(done, crowded, tried(1, alone))
}

// again tries once more, one at a time, what a busy machine may have spoiled.
func again(t *testing.T, done []outcome, spoiled func(seen error) bool) []outcome {
	t.Helper()
	for i, d := range done {
		if spoiled(d.seen) {
			t.Logf("%s: %q: once more, for it said: %v", d.name, d.scenario.Name, d.seen)
			done[i] = tried(1, []task{d.task})[0]
		}
	}
	return done
}

const noLeak = "no goroutine outlives Close"

// TestFatalf_ofTheHarnessIsTheTests: a server that is not there is no broken promise.
func TestFatalf_ofTheHarnessIsTheTests(t *testing.T) {
	h := conformance.Harness{TTL: time.Second, New: func(t conformance.TB, _ string, _ time.Duration) locker.Locker {
		t.Fatalf("no server at %s", "localhost")
		return nil
	}}
	assert.EqualError(t, try(conformance.Scenarios()[0], h), "Fatalf: no server at localhost")
}

// TestCleanups_runAtTheEndOfEachTrial: the Lockers of one trial are not to disturb the next.
func TestCleanups_runAtTheEndOfEachTrial(t *testing.T) {
	var made, ended int
	h := memory()
	newLock := h.New
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		made++
		t.Cleanup(func() { ended++ })
		return newLock(t, name, ttl)
	}
	require.NoError(t, conformance.Scenarios()[0].Check(t, h))
	assert.NotZero(t, made)
	assert.Equal(t, made, ended, "nothing is left to the end of the test")
}

// It is not parallel, for the flag is every scenario's.
func TestRecord_leavesWhatAScenarioDid(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, flag.Set("conformance.record", dir))
	t.Cleanup(func() { _ = flag.Set("conformance.record", "") })
	const name = "a late write with the token of a lost hold is refused"
	scenarios := conformance.Scenarios()
	s := scenarios[slices.IndexFunc(scenarios, func(s conformance.Scenario) bool { return s.Name == name })]
	in := tb.New(context.Background(), nil)
	require.NoError(t, in.Run(func() { conformance.Examine(in, s, memory()) }))
	in.End()

	found, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the last trial's")
	h, err := history.Read(found[0])
	require.NoError(t, err)
	assert.Equal(t, name, h.Scenario)
	assert.Equal(t, "kept", h.Outcome)
	assert.False(t, h.Check().Refused())
	writes := map[history.ErrKind]int{}
	for _, e := range h.Events {
		if e.Op == history.OpWrite && e.Fenced {
			writes[e.Err]++
		}
	}
	assert.Equal(t, map[history.ErrKind]int{history.NoErr: 2, history.IsStale: 2}, writes, "B's, and A's late ones")
}

const inOrder = "waiters are served in the order in which they came"

// What a Client says of itself need not be said once more. What the Harness says is what counts.
func TestPromises_areThoseOfTheClient(t *testing.T) {
	for what, c := range map[string]struct {
		harness  func() conformance.Harness
		want     conformance.Outcome
		promised *locker.Promise
	}{
		"by itself":             {memory, conformance.Kept, &locker.Promise{Level: locker.LevelYes}},
		"the Locker says none":  {bareLocks, conformance.Skipped, nil},
		"the Harness says none": {func() conformance.Harness { h := memory(); h.Promises = locker.Guarantees{}; return h }, conformance.Skipped, nil},
		"a Client without it":   {polled, conformance.Skipped, nil},
	} {
		t.Run(what, func(t *testing.T) {
			r := conformance.Examine(t, find(t, inOrder), c.harness())
			assert.Equal(t, c.want, r.Outcome, "%+v", r)
			if c.promised == nil {
				assert.Nil(t, r.Promised)
				return
			}
			require.NotNil(t, r.Promised)
			assert.Equal(t, c.promised.Level, r.Promised.Level)
		})
	}
}

// Who calls a scenario's Check directly is asked the same.
func TestPromises_ofACheck(t *testing.T) {
	require.NoError(t, try(find(t, inOrder), memory()))
	assert.True(t, conformance.IsSkip(try(find(t, inOrder), bareLocks())))
}

// The Locker that is asked has ended before a scenario begins. If it cannot be made the test ends,
// as it does in a scenario.
func TestPromises_leaveNothingOpen(t *testing.T) {
	var made, ended atomic.Int32
	h := memory()
	inner := h.New
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		made.Add(1)
		t.Cleanup(func() { ended.Add(1) })
		return inner(t, name, ttl)
	}
	s := conformance.Scenario{Name: "s", Guarantee: locker.Ordered}.Checking(func(conformance.TB, conformance.Harness) error {
		assert.Equal(t, int32(1), made.Load())
		assert.Equal(t, int32(1), ended.Load())
		return nil
	})
	conformance.Examine(t, s, h)
	made.Store(0)
	s.Guarantee = ""
	conformance.Examine(t, s.Checking(func(conformance.TB, conformance.Harness) error { return nil }), h)
	assert.Zero(t, made.Load(), "Lockers made for a scenario of no guarantee")
}

func TestPromises_ofAHarnessThatFails(t *testing.T) {
	returned := false
	trial := tb.New(t.Context(), nil)
	defer trial.End()
	err := trial.Run(func() {
		conformance.Examine(trial, find(t, inOrder), conformance.Harness{TTL: time.Second, New: func(t conformance.TB, _ string, _ time.Duration) locker.Locker {
			t.Fatalf("no server")
			return nil
		}})
		returned = true
	})
	assert.False(t, returned)
	require.EqualError(t, err, "no server")
}

const memoryTTL = 300 * time.Millisecond

var spaces atomic.Int64

// space names a memory backend that nobody else uses.
func space() string { return fmt.Sprintf("conformance-%d", spaces.Add(1)) }

// open opens a client of a space, that ends with t.
func open(t conformance.TB, space string, ttl time.Duration, renew bool) *locker.Client {
	c, err := locker.Open(t.Context(), fmt.Sprintf("mem://%s?ttl=%s&renew=%t", space, ttl, renew))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// memory is the harness of a memory backend.
func memory() conformance.Harness {
	in := space()
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return open(t, in, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := open(t, in, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		RW: func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return open(t, in, ttl, false).RWMutex(name)
		},
	}
}

func TestMemory(t *testing.T) {
	t.Cleanup(conformance.Doubts(0))
	conformance.Run(t, memory())
}
