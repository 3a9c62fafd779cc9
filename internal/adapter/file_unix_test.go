//go:build unix

package adapter_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/adapter"
)

// Nobody writes to the pipe, and /dev/zero has no end.
func TestTLS_refusesPipesAndDevices(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, file := range []string{fifo, "/dev/zero"} {
		_, err := adapter.TLS(t.Context(), query("tls_ca", file), "redis", "")
		require.EqualError(t, err, "parameter tls_ca: "+file+" is not a regular file")
	}
}
