package harness

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// Connector is what client libraries connect by.
type Connector = func(ctx context.Context, network, addr string) (net.Conn, error)

// RedisAllocations tests that a pair of Lock and Unlock makes that many allocations, or fewer, two
// writes and two reads: what is not used is not paid for, and a capability that adds to a plain,
// free lock shows here. client makes a Client that connects by dial. The race detector allocates,
// too.
//
// The least of many is meant.
func RedisAllocations(t *testing.T, most float64, client func(dial Connector) *locker.Client) {
	server := &prompt{}
	c := client(func(context.Context, string, string) (net.Conn, error) { return server, nil })
	m, ctx := c.Mutex("x"), t.Context()
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Unlock(ctx))
	least := 1000.0
	for range 200 {
		least = min(least, testing.AllocsPerRun(5, func() {
			if m.Lock(ctx) != nil || m.Unlock(ctx) != nil {
				t.Error("not granted")
			}
		}))
	}
	assert.Greater(t, server.takes, 1000)
	assert.LessOrEqual(t, least, most, "a pair of Lock and Unlock")
	before := *server
	for range 100 {
		require.NoError(t, m.Lock(ctx))
		require.NoError(t, m.Unlock(ctx))
	}
	assert.Equal(t, 2*100, server.writes-before.writes, "writes")
	assert.Equal(t, 2*100, server.reads-before.reads, "reads")
}

// prompt is a connection to a server that grants at once, and allocates nothing.
type prompt struct {
	net.Conn // nil

	takes         int
	took          bool
	replies       []byte
	writes, reads int // each a system call, if it were a socket
}

func (c *prompt) Write(b []byte) (int, error) {
	c.writes++
	switch now := time.Now().UnixMicro(); {
	case !bytes.Contains(b, []byte("evalsha")) && !bytes.Contains(b, []byte("EVALSHA")):
		c.replies = append(c.replies, "-ERR unknown command\r\n"...)
	case c.took:
		c.took = false
		c.replies = append(c.replies, ":1\r\n"...)
	case c.takes == 0: // the server's clock is not known
		c.takes++
		c.replies = append(c.replies, "*2\r\n:-1\r\n:"...)
		c.replies = append(strconv.AppendInt(c.replies, now, 10), "\r\n"...)
	default:
		c.takes++
		c.took = true
		c.replies = append(c.replies, "$16\r\n"...)
		c.replies = append(strconv.AppendInt(c.replies, now, 10), "\r\n"...)
	}
	return len(b), nil
}

func (c *prompt) Read(b []byte) (int, error) {
	c.reads++
	n := copy(b, c.replies)
	c.replies = append(c.replies[:0], c.replies[n:]...)
	return n, nil
}

func (*prompt) Close() error                     { return nil }
func (*prompt) SetDeadline(time.Time) error      { return nil }
func (*prompt) SetReadDeadline(time.Time) error  { return nil }
func (*prompt) SetWriteDeadline(time.Time) error { return nil }
func (*prompt) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*prompt) LocalAddr() net.Addr              { return &net.TCPAddr{} }

// spaces are the prefixes of the tests that run, by name, and how many there were.
var spaces struct {
	sync.Mutex
	of    map[string]string
	count int
}

// Space returns a prefix of locks that no other test of this process has, the same one for each call of t. Most tests share one
// server. A subtest has a prefix of its own.
func Space(t testing.TB) string {
	t.Helper()
	spaces.Lock()
	defer spaces.Unlock()
	if s, ok := spaces.of[t.Name()]; ok {
		return s
	}
	if spaces.of == nil {
		spaces.of = map[string]string{}
	}
	spaces.count++
	s := fmt.Sprint("t", spaces.count)
	spaces.of[t.Name()] = s
	t.Cleanup(func() {
		spaces.Lock()
		defer spaces.Unlock()
		delete(spaces.of, t.Name())
	})
	return s
}
