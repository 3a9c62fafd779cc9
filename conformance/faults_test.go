package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// TestHarm_fatalfInItsEndIsTheHarnesss: a server that does not start again ends the test, and not the
// program.
func TestHarm_fatalfInItsEndIsTheHarnesss(t *testing.T) {
	e := newEnv(t, Harness{TTL: time.Second})
	calls := 0
	undo := make(chan func(), 1)
	_, verdict := e.trial.Run(time.Minute, func() {
		f := e.harm(func(t TB) func() {
			return func() {
				calls++
				t.Fatalf("it does not start again")
			}
		})
		undo <- f
		f()
	})
	(<-undo)()
	e.close()
	assert.Equal(t, 1, calls)
	var bad *engine.Fatal
	require.ErrorAs(t, verdict, &bad)
	assert.Equal(t, "it does not start again", bad.Message)
}
