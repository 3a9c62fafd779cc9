package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestDetach_returnsWhatTheCallDoes(t *testing.T) {
	require.NoError(t, locker.Detach(t.Context(), time.Minute, func(context.Context) error { return nil }))
	require.ErrorIs(t, locker.Detach(t.Context(), time.Minute, func(context.Context) error { return errRefused }), errRefused)
	bubble(t, func(t *testing.T, b *backend) {
		l := &lease{b: b}
		got, err := locker.DetachAcquire(t.Context(), time.Minute, func(context.Context) (locker.Lease, error) { return l, errRefused })
		require.ErrorIs(t, err, errRefused)
		assert.Same(t, l, got)
	})
}

// The end of ctx is not seen by the client library, which might take it for a failure and close its connection.
func TestDetach_theCallHasAContextOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		type key struct{}
		ctx, seen := context.WithValue(ending(t, time.Second), key{}, "trace"), make(chan context.Context, 1)
		err := locker.Detach(ctx, time.Minute, func(own context.Context) error {
			seen <- own
			<-own.Done()
			return own.Err()
		})
		require.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, time.Second, time.Since(b.start))
		own := <-seen
		require.NoError(t, own.Err())
		assert.Equal(t, "trace", own.Value(key{}))
		<-own.Done()
		assert.Equal(t, time.Minute, time.Since(b.start))
	})
}

// What a call takes that goes on is released by the Release of the lease that stands for it.
func TestDetachAcquire_releasesWhatIsTakenLate(t *testing.T) {
	const late = 2 * time.Second
	for name, taken := range map[string]bool{"taken": true, "not taken": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				pending, err := locker.DetachAcquire(ending(t, time.Second), time.Minute, func(ctx context.Context) (locker.Lease, error) {
					time.Sleep(late)
					if !taken {
						return nil, locker.ErrHeld
					}
					return (&driver{b: b}).Acquire(ctx, locker.Request{Name: "locker:x", TTL: ttl})
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Positive(t, pending.Validity(), "the core goes on trying")
				require.ErrorIs(t, pending.Extend(t.Context(), ttl), locker.ErrLost)
				require.ErrorIs(t, pending.Release(ending(t, time.Millisecond)), context.DeadlineExceeded)
				require.NoError(t, pending.Release(t.Context()))
				assert.Equal(t, late, time.Since(b.start))
				assert.Zero(t, b.holder("x"))
				assert.Equal(t, taken, pending.Validity() > 0)
				synctest.Wait()
			})
		})
	}
}
