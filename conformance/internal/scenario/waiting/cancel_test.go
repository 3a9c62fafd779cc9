package waiting

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Looks at Done and at Err count alike.
func TestCancelledAtLook(t *testing.T) {
	ctx, cancel := cancelledAtLook(t.Context(), 3)
	defer cancel()
	require.NoError(t, ctx.Err())
	select {
	case <-ctx.Done():
		t.Fatal("at the second look")
	default:
	}
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}
