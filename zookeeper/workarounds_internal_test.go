package zookeeper

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// On a connection that was made again answers wait until the library has sent its watches, but not for long.
func TestLink_answersComeAfterTheWatches(t *testing.T) {
	const pause = time.Minute
	for name, tt := range map[string]struct {
		op     uint32 // of the request that is sent
		waited time.Duration
	}{
		"watches":         {opSetWatches, 0},
		"another request": {11, pause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer func() { _ = client.Close() }()
				defer func() { _ = server.Close() }()
				l := &link{Conn: client}
				l.holdAnswers(pause)
				answers := make(chan string, 1)
				go func() {
					answer := make([]byte, 6)
					_, err := l.Read(answer)
					assert.NoError(t, err)
					answers <- string(answer)
				}()
				go func() { _, _ = server.Write([]byte("answer")) }()
				synctest.Wait()
				assert.Empty(t, answers)

				start := time.Now()
				request := make([]byte, 12)
				binary.BigEndian.PutUint32(request[8:], tt.op)
				go func() { _, _ = server.Read(make([]byte, len(request))) }()
				_, err := l.Write(request)
				require.NoError(t, err)
				assert.Equal(t, "answer", <-answers)
				assert.Equal(t, tt.waited, time.Since(start))
			})
		})
	}
}

// How long they wait is up to whether there are watches.
func TestSession_knowsOfItsWatches(t *testing.T) {
	s := &session{watches: map[string]<-chan zk.Event{}}
	const ttl = 3 * time.Second
	n := newNetwork(t.Context(), []string{"127.0.0.1:2181"}, time.Second, ttl, s.watching)
	assert.Equal(t, 50*time.Millisecond, n.watchPause())
	fired := make(chan zk.Event, 1)
	s.keepWatch("a", fired)
	assert.Equal(t, ttl/3, n.watchPause())
	fired <- zk.Event{}
	assert.Equal(t, 50*time.Millisecond, n.watchPause(), "the only one has fired")
	s.keepWatch("b", make(chan zk.Event, 1))
	assert.Equal(t, ttl/3, n.watchPause())
}

// While other servers can be asked, a silent one is left soon, twice round; then each has time, until there is a session.
func TestNetwork_howLongAServerMayBeSilent(t *testing.T) {
	const ttl = 24 * time.Second
	long, short := pace(ttl)/3, pace(ttl)/8
	assert.Less(t, short, long)
	for servers, want := range map[int][]time.Duration{
		1: {long, long},
		2: {short, short, long, long},
		4: {short, short, short, short, short, short, long, long},
	} {
		n := newNetwork(t.Context(), make([]string, servers), time.Second, ttl, func() bool { return false })
		var got []time.Duration
		for range want {
			got = append(got, n.greeting())
			n.silences++
		}
		assert.Equal(t, want, got, "%d servers", servers)
		n.current = new(link)
		n.attached()
		assert.Equal(t, want[0], n.greeting(), "%d servers, after there was a session", servers)
	}
}

// halfConn is a connection to a server that takes the farewell, does not answer it, and takes nothing after it.
type halfConn struct {
	net.Conn

	farewell *atomic.Bool
}

func (c *halfConn) Write(b []byte) (int, error) {
	const opClose = ^uint32(10) // -11
	switch {
	case c.farewell.Load():
		return 0, net.ErrClosed
	case len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == opClose:
		c.farewell.Store(true)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Of a request that it could not write, and for which nobody waits because it is closing, the library cannot say so three times.
func TestLink_whatIsAskedWhileTheLibraryClosesDoesNotKeepItForEver(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	for range 8 { // it is a matter of luck
		var farewell atomic.Bool
		conn, events, err := zk.Connect([]string{s.Addr()}, 4*time.Second, zk.WithLogger(silent{}),
			zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				c, err := net.DialTimeout(network, address, timeout)
				return &link{Conn: &halfConn{c, &farewell}, greeting: time.Minute, patience: time.Minute}, err
			}))
		require.NoError(t, err)
		for e := range events {
			if e.State == zk.StateHasSession {
				break
			}
		}
		var closing sync.WaitGroup
		closing.Go(conn.Close)
		require.Eventually(t, farewell.Load, 10*time.Second, time.Millisecond)
		for range 20 {
			_, _, err := conn.Get("/")
			require.Error(t, err)
		}
		closing.Wait()
		ended := time.After(10 * time.Second)
		for open := true; open; {
			select {
			case _, open = <-events:
			case <-ended:
				t.Fatal("its goroutines go on")
			}
		}
	}
}
