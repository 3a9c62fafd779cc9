package conformance_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/tb"
)

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
