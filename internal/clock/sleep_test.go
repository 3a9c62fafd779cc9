package clock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSleep_ofNoTimeSetsNoTimer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		require.NoError(t, Sleep(ctx, 0))
		require.NoError(t, Sleep(ctx, -1))
	}))
	cancel()
	assert.ErrorIs(t, Sleep(ctx, 0), context.Canceled)
}
