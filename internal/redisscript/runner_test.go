package redisscript

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplicas_haveWhatIsLeftOfCtx(t *testing.T) {
	within := func(left, timeout time.Duration) time.Duration {
		ctx := t.Context()
		if left != 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left)
			defer cancel()
		}
		r := Replicas{N: 2, Timeout: timeout}.Within(ctx)
		require.Equal(t, 2, r.N)
		require.Zero(t, r.Timeout%time.Millisecond, "WAIT takes whole milliseconds")
		return r.Timeout
	}
	assert.Equal(t, 500*time.Millisecond, within(0, 500*time.Millisecond))
	assert.Equal(t, 500*time.Millisecond, within(time.Minute, 500*time.Millisecond))
	some := within(time.Second, time.Minute)
	assert.Less(t, some, time.Second, "less than what is left")
	assert.Positive(t, some)
	assert.Equal(t, time.Millisecond, within(-time.Second, time.Minute), "0 would be for ever")
}
