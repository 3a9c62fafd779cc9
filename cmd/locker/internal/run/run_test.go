package run

import (
	"context"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// attempts counts connections to a backend that refuses the first, and answers no other.
var attempts int

func init() {
	driver.Register("refuses", func(ctx context.Context, _ *driver.URL) (driver.Driver, error) {
		if attempts++; attempts == 1 {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// An attempt that --wait cuts short does not hide why those before it failed.
func TestAcquire_saysWhyThoughTheLastAttemptWasCutShort(t *testing.T) {
	attempts = 0
	synctest.Test(t, func(t *testing.T) {
		o := Options{Wait: 2 * time.Second}
		_, err := o.acquire(t.Context(), "refuses://x", "name")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}
