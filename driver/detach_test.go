package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

var errRefused = errors.New("refused")

func ending(t *testing.T, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

func TestDetach_returnsWhatTheCallDoes(t *testing.T) {
	require.NoError(t, driver.Detach(t.Context(), time.Minute, func(context.Context) error { return nil }))
	require.ErrorIs(t, driver.Detach(t.Context(), time.Minute, func(context.Context) error { return errRefused }), errRefused)
}

// The end of ctx is not seen by the client library, which might take it for a failure and close its
// connection.
func TestDetach_theCallHasAContextOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		began := time.Now()
		ctx, seen := context.WithValue(ending(t, time.Second), key{}, "trace"), make(chan context.Context, 1)
		err := driver.Detach(ctx, time.Minute, func(own context.Context) error {
			seen <- own
			<-own.Done()
			return own.Err()
		})
		require.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, time.Second, time.Since(began))
		own := <-seen
		require.NoError(t, own.Err())
		assert.Equal(t, "trace", own.Value(key{}))
		<-own.Done()
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
