package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/conformance"
)

func TestVerdict_ofALockThatCannotBeMade(t *testing.T) {
	t.Parallel()
	cleaned := false
	e := &examiner{harness: conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, _ string, _ time.Duration) locker.Locker {
			t.Cleanup(func() { cleaned = true })
			t.Fatalf("no route to %s", "host")
			return nil
		},
	}}
	v := e.examine(t.Context(), conformance.Scenarios()[0])
	assert.Equal(t, conformance.Undecided, v.Outcome)
	assert.Equal(t, "no route to host", v.Seen)
	assert.True(t, cleaned)
	var o *outcome.Error
	require.ErrorAs(t, (&Report{Results: []Verdict{v}}).Verdict(false), &o)
	assert.Equal(t, outcome.Unreachable, o.Code)
}
