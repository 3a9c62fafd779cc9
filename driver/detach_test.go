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
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/memory"
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
	lease, err := claims.Take(t.Context(), memory.NewDriver(memory.InSpace(t.Name())), driver.Request{Name: "x", TTL: time.Minute})
	require.NoError(t, err)
	got, err := driver.DetachAcquire(t.Context(), time.Minute, func(context.Context) (driver.Lease, error) { return lease, errRefused })
	require.ErrorIs(t, err, errRefused)
	assert.Same(t, lease, got)
}

// The end of ctx is not seen by the client library, which might take it for a failure and close its connection.
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

// What a call takes after its context has ended is released by the Cleanup beside the error.
func TestDetachAcquire_releasesWhatIsTakenLate(t *testing.T) {
	const late = 2 * time.Second
	req := driver.Request{Name: "x", TTL: time.Minute}
	for name, taken := range map[string]bool{"taken": true, "not taken": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, began := memory.NewDriver(memory.InSpace(t.Name())), time.Now()
				cleanup, err := driver.DetachAcquire(ending(t, time.Second), time.Minute, func(ctx context.Context) (driver.Lease, error) {
					time.Sleep(late)
					if !taken {
						return nil, driver.ErrHeld
					}
					return claims.Take(ctx, d, req)
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, cleanup.Extend(t.Context(), time.Minute), driver.ErrLost)
				require.ErrorIs(t, cleanup.Release(ending(t, time.Millisecond)), context.DeadlineExceeded)
				require.NoError(t, cleanup.Release(t.Context()))
				assert.Equal(t, late, time.Since(began))
				free, err := claims.Take(t.Context(), d, req)
				require.NoError(t, err)
				require.NoError(t, free.Release(t.Context()))
			})
		})
	}
}
