package wire

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func request(args ...string) string {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, arg := range args {
		b.WriteString("$" + strconv.Itoa(len(arg)) + "\r\n" + arg + "\r\n")
	}
	return b.String()
}

func TestRequestParser_findsCommandsHoweverTheStreamIsCut(t *testing.T) {
	stream := request("SET", "k", "") +
		request("EVALSHA", "abc", "1", "k", request("FLUSHALL")+"$4\r\n") + // only looks like more of them
		request("PING") +
		request("EVAL", "return 1\r\n*1\n", "0")
	want := []string{"SET", "EVALSHA", "PING", "EVAL"}
	for size := 1; size <= len(stream); size++ {
		var got []string
		p := requestParser{command: func(name []byte) { got = append(got, string(name)) }}
		for piece := range slices.Chunk([]byte(stream), size) {
			p.feed(piece)
		}
		require.Equal(t, want, got, "in pieces of %d bytes", size)
	}
}

func TestTally_countsWhatItsConnectionsWrite(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	sent := NewTally()
	for range 2 {
		conn, err := sent.Dial(context.Background(), &net.Dialer{Timeout: time.Second}, "tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, request("PING")+request("ping")+request("GET", "k"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, map[string]int64{"ping": 4, "get": 2}, sent.Snapshot())
}
