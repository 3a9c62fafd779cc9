package tb

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A function that does not return is waited for no longer than a while after the end of the
// context.
func TestRun_endsThoughTheFunctionDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		forever := make(chan struct{})
		defer close(forever)
		began := time.Now()
		err := New(ctx, nil).Run(func() { <-forever })
		require.ErrorContains(t, err, "no answer")
		require.ErrorContains(t, err, "interrupted")
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestScope(t *testing.T) {
	var said, done []string
	s := New(t.Context(), func(format string, _ ...any) { said = append(said, format) })
	s.Cleanup(func() {
		require.Error(t, s.Context().Err())
		s.Cleanup(func() { done = append(done, "inner") })
		done = append(done, "first")
	})
	s.Cleanup(func() { done = append(done, "second") })
	s.Logf("words")
	require.ErrorContains(t, s.Run(func() { s.Fatalf("it is %d", 1) }), "it is 1")
	require.NoError(t, s.Run(func() {}))
	s.End()
	s.Cleanup(func() { done = append(done, "at once") })
	s.Logf("nobody reads it any more")
	assert.Equal(t, []string{"second", "first", "inner", "at once"}, done)
	assert.Equal(t, []string{"words"}, said)
}

// A trial that has failed is cleaned up by its body and by who waits for its verdict, at the same
// time: neither goes on before servers run again.
func TestEnd_twice(t *testing.T) {
	s := Within(t, t.Fatalf)
	began, proceed := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	s.Cleanup(func() {
		close(began)
		<-proceed
		done.Store(true)
	})
	var wg sync.WaitGroup
	wg.Go(s.End)
	<-began
	wg.Go(func() {
		s.End()
		assert.True(t, done.Load(), "it is still under way")
	})
	time.Sleep(20 * time.Millisecond)
	close(proceed)
	wg.Wait()
}
