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

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The library reads lastZxid when it sends its watches again, and writes it for each answer, in another goroutine. The race detector
// tells if an answer comes first.
func TestLink_noAnswerComesBeforeTheWatchesAreSent(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"without a user": "", "with a user": "name:secret@"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := driver.ParseURL("zookeeper://" + user + testserver.SharedZooKeeper(t).Addr() + "?tick=100ms&acl=world")
			require.NoError(t, err)
			d, err := open(t.Context(), u)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			l, err := d.Acquire(t.Context(), driver.Request{Name: fresh(), TTL: 3 * time.Second})
			require.NoError(t, err)
			s := l.(*lease).session
			_, _, _, err = s.conn.ExistsW("/nobody-has-told-the-session") //nolint:dogsled // the watch is what it is for
			require.NoError(t, err)
			for range 30 {
				s.own.cut()
				var asking sync.WaitGroup
				for range 4 {
					asking.Go(func() {
						waitFor(t, "it answers again", func() bool {
							_, _, err := s.conn.Get("/")
							return err == nil
						})
					})
				}
				asking.Wait()
			}
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

// On a connection that was made again answers wait until the library has sent its watches, however long that takes. The answer to who we
// are does not: they are sent after it.
func TestLink_answersComeAfterTheWatches(t *testing.T) {
	const getData = 4
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		l := &link{Conn: client}
		l.holdAnswers()
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
		l.holdAnswers()
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
		n := newNetwork(t.Context(), &Driver{servers: make([]string, servers)}, ttl)
		var got []time.Duration
		for range want {
			got = append(got, n.greeting())
			n.silences++
		}
		assert.Equal(t, want, got, "%d servers", servers)
		n.current = new(link)
		n.attached(new(zk.Conn))
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
				return &link{Conn: &halfConn{c, &farewell}, patience: time.Minute}, err
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
