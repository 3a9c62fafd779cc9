package redigo_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A handshake that gets no answer ends with its context, and leaves nobody waiting for it.
func TestTLS_aHandshakeThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }() // never accepts
	c := openClient(t, "redigos://"+l.Addr().String())
	wantEndsWithCtx(t, c)
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), 2*time.Second)
}
