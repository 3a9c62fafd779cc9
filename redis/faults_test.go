package redis_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/stopwatch"
	"github.com/go-locker/locker/internal/test/testserver"
)

// wantOwnError fails unless err is the client library's, with text in it, and no news of another owner.
func wantOwnError(t *testing.T, err error, text string) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.NotErrorIs(t, err, locker.ErrLost)
	var own goredis.Error
	require.ErrorAs(t, err, &own, "%v", err)
	require.Contains(t, own.Error(), text, "%q, want %s in it", own, text)
}

// wantEnds fails unless Lock ends by itself, soon for a TTL that is short, and within ctx for one that
// is long. It returns both errors.
func wantEnds(t *testing.T, rdb goredis.UniversalClient) (unbounded, bounded error) {
	t.Helper()
	const ttl = 3 * time.Second
	elapsed := stopwatch.Start(t)
	unbounded = clientOf(t, rdb, locker.WithTTL(ttl)).Mutex("x").Lock(context.Background())
	require.Error(t, unbounded)
	assert.Less(t, elapsed(), ttl, "one attempt takes TTL/2 at most: %v", unbounded)

	before := elapsed()
	bounded = clientOf(t, rdb, locker.WithTTL(2*ttl)).Mutex("x").Lock(withTimeout(t, 100*time.Millisecond))
	require.Error(t, bounded)
	assert.Less(t, elapsed()-before, ttl/2, "%v", bounded)
	require.NotErrorIs(t, unbounded, locker.ErrHeld)
	require.NotErrorIs(t, bounded, locker.ErrHeld)
	return unbounded, bounded
}

// clients are the two kinds of go-redis clients: that ignore a context in flight, and that heed it.
var clients = map[string]func(*goredis.Options){
	"ignores ctx": func(*goredis.Options) {},
	"heeds ctx":   heedingCtx,
}

func TestFaults_refused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	unbounded, _ := wantEnds(t, connect(t, s.Addr(), func(o *goredis.Options) { o.DialerRetries = 1 }))
	var dial *net.OpError
	require.ErrorAs(t, unbounded, &dial)
	err := openURL(t, s.URL()).Mutex("x").TryLock(t.Context()) // Open does not need the server
	require.ErrorAs(t, err, &dial)
	assert.Equal(t, "dial", dial.Op)
}

func TestFaults_readOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t)
	replica := testserver.Redis(t, testserver.RedisReplicaOf(primary))
	rdb := connect(t, replica.Addr())
	c := clientOf(t, rdb, locker.WithTTL(10*time.Second))
	m := c.Mutex("x")
	wantOwnError(t, m.Lock(t.Context()), "READONLY")
	assert.Zero(t, rdb.DBSize(t.Context()).Val())

	// A primary that is demoted while the lock is held.
	p := clientOf(t, connect(t, primary.Addr()), locker.WithTTL(time.Second), locker.WithoutRenewal()).Mutex("y")
	require.NoError(t, p.Lock(t.Context()))
	require.NoError(t, connect(t, primary.Addr()).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(), "a primary that never answers, so that the data stays")
	wantOwnError(t, p.Extend(t.Context()), "READONLY")
	assert.NotZero(t, p.FencingToken())
	wantOwnError(t, p.Unlock(t.Context()), "READONLY")
}

// A server that is not there, and one that is no Redis.
func TestFaults_serversOfAnotherKind(t *testing.T) {
	t.Parallel()
	for name, greeting := range map[string]string{
		"closes at once": "",
		"speaks HTTP":    "HTTP/1.1 400 Bad Request\r\n\r\n",
		"loading":        strings.Repeat("-LOADING Redis is loading the dataset in memory\r\n", 3),
		"wrong array":    strings.Repeat("*3\r\n:1\r\n:2\r\n+three\r\n", 3),
	} {
		t.Run(name, func(t *testing.T) {
			addr := otherServer(t, greeting)
			_, _ = wantEnds(t, connect(t, addr, heedingCtx))
		})
	}
}

// otherServer is a server that answers every chunk of requests with the same.
func otherServer(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := async(func() error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil //nolint:nilerr // closed
			}
			go func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for buf := make([]byte, 4096); answer != ""; {
					if _, err := r.Read(buf); err != nil {
						return
					}
					_, _ = conn.Write([]byte(answer))
				}
			}()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		_ = await(t, done)
	})
	return l.Addr().String()
}
