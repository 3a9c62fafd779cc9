package zookeeper

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// On a connection that was made again answers wait until the library has sent its watches, however
// long that takes. The answer to who we are does not: they are sent after it.
func TestLink_answersComeAfterTheWatches(t *testing.T) {
	const getData = 4
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		l := &link{Conn: client}
		l.holdReads()
		send := func(op uint32) {
			request := make([]byte, 12)
			binary.BigEndian.PutUint32(request[8:], op)
			go func() { _, _ = server.Read(make([]byte, len(request))) }()
			_, err := l.Write(request)
			require.NoError(t, err)
		}
		type read struct {
			n   int
			err error
		}
		answer := func() <-chan read {
			got := make(chan read, 1)
			go func() {
				n, err := l.Read(make([]byte, 6))
				got <- read{n, err}
			}()
			go func() { _, _ = server.Write([]byte("answer")) }()
			return got
		}
		send(opSetAuth)
		assert.Equal(t, read{n: 6}, <-answer())
		send(getData)
		got := answer()
		time.Sleep(time.Minute)
		assert.Empty(t, got)
		send(opSetWatches)
		assert.Equal(t, read{n: 6}, <-got)
		assert.Equal(t, read{n: 6}, <-answer())
		require.NoError(t, l.Close())
		require.NoError(t, server.Close())
	})
	synctest.Test(t, func(t *testing.T) { // they never are
		client, server := net.Pipe()
		l := &link{Conn: client}
		l.holdReads()
		l.asked.Store(true)
		go func() { _, _ = server.Write([]byte("answer")) }()
		closed := time.AfterFunc(time.Minute, func() { _ = l.Close() })
		defer closed.Stop()
		n, err := l.Read(make([]byte, 6))
		require.ErrorIs(t, err, net.ErrClosed)
		assert.Zero(t, n)
		require.NoError(t, server.Close())
	})
}

// While other servers can be asked, a silent one is left soon, twice round; then each has time,
// until there is a session.
func TestNetwork_howLongAServerMayBeSilent(t *testing.T) {
	const ttl = 24 * time.Second
	long, short := pace(ttl)/3, pace(ttl)/8
	assert.Less(t, short, long)
	for servers, want := range map[int][]time.Duration{
		1: {long, long},
		2: {short, short, long, long},
		4: {short, short, short, short, short, short, long, long},
	} {
		n := newNetwork(t.Context(), &backend{servers: make([]string, servers)}, ttl)
		var got []time.Duration
		for range want {
			got = append(got, n.connectTimeout())
			n.timeouts++
		}
		assert.Equal(t, want, got, "%d servers", servers)
		n.current = new(link)
		n.established(new(zk.Conn))
		assert.Equal(t, want[0], n.connectTimeout(), "%d servers, after there was a session", servers)
	}
}

// The library answers a request that it could not write twice, which blocks it for good. So it
// never hears of one.
func TestLink_aWriteThatFailsClosesTheConnection(t *testing.T) {
	client, server := net.Pipe()
	require.NoError(t, server.Close())
	l := &link{Conn: client}
	n, err := l.Write([]byte("request"))
	require.NoError(t, err)
	assert.Equal(t, len("request"), n)
	_, err = client.Write(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe, "it is closed")
}
