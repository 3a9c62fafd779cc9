package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHarm_fatalfInItsEndIsTheHarnesss: a server that does not start again ends the test, and not the
// program.
func TestHarm_fatalfInItsEndIsTheHarnesss(t *testing.T) {
	e := newEnv(t, Harness{TTL: time.Second})
	calls := 0
	undo := make(chan func(), 1)
	e.spawn(func() {
		f := e.harm(func(t TB) func() {
			return func() {
				calls++
				t.Fatalf("it does not start again")
			}
		})
		undo <- f
		f()
	})
	e.others.Wait()
	(<-undo)()
	e.close()
	assert.Equal(t, 1, calls)
	var bad *fatalError
	require.ErrorAs(t, <-e.verdict, &bad)
	assert.Equal(t, "it does not start again", bad.message)
}
