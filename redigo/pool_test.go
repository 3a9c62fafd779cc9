package redigo_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redigo"
	overgoredis "github.com/go-locker/locker/redis"
)

// All connections of the application's pool fall silent. The requests of the holds cannot try them
// one by one.
func TestPool_connectionsThatFallSilentAreLeft(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewProxy(t, testserver.Redis(t).Addr())
	p := newPool(t, proxy.Addr(), func(p *redis.Pool) { p.MaxIdle, p.MaxActive, p.Wait = 20, 20, true })
	c := testwait.Closed(redigo.New(p, locker.WithTTL(3*time.Second)))(t)
	var conns []redis.Conn
	for range 20 {
		conns = append(conns, p.Get())
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	m, other := c.Mutex("x"), c.Mutex("y")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, other.Lock(t.Context()))
	proxy.HushConns()
	require.NoError(t, m.Unlock(t.Context()))
	time.Sleep(4 * time.Second)
	require.NoError(t, other.Unlock(t.Context()), "it was renewed meanwhile")
}

// A pool's functions that know no context, and go on for longer than half of the TTL.
func TestPool_functionsThatBlock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for name, install := range map[string]func(p *redis.Pool, block func()){
		"Dial": func(p *redis.Pool, block func()) {
			p.DialContext = nil
			p.Dial = func() (redis.Conn, error) {
				block()
				return redis.Dial("tcp", s.Addr())
			}
		},
		"TestOnBorrow": func(p *redis.Pool, block func()) {
			p.TestOnBorrow = func(redis.Conn, time.Time) error {
				block()
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var blocked atomic.Bool
			unblock := make(chan struct{})
			p := newPool(t, s.Addr(), ofOne, func(p *redis.Pool) {
				install(p, func() {
					if blocked.Load() {
						<-unblock
					}
				})
			})
			c := clientOf(t, p, locker.WithTTL(time.Second))
			if name != "Dial" {
				require.NoError(t, p.Get().Close(), "an idle one")
			}
			blocked.Store(true)
			require.Error(t, await(t, async(func() error { return c.Mutex("x").TryLock(context.Background()) })))
			blocked.Store(false)
			close(unblock)
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()), "the pool has its one place back")
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, c.Close())
			assert.Equal(t, p.IdleCount(), p.ActiveCount(), "Close has waited for what came late")
			require.NoError(t, p.Get().Err(), "and has left the pool open")
		})
	}
}

// What does not fit into the buffers on the way is a write that blocks.
func TestStopped_aPipelineThatIsTooLong(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr())
	d := driverOf(t, p)
	lease := take(t, d, strings.Repeat("x", 10000), time.Minute)
	require.NoError(t, lease.Extend(t.Context(), time.Minute), "loads the script")
	s.Stop()
	defer s.Continue()
	start := time.Now()
	for _, err := range d.ExtendAll(withTimeout(t, 2*time.Second), slices.Repeat([]driver.Claim{lease}, 3000), time.Minute) {
		require.ErrorIs(t, err, context.DeadlineExceeded) // or a dial's, which is one, too
	}
	assert.Less(t, time.Since(start), 5*time.Second)
	assert.Zero(t, p.ActiveCount())
}

// Connections that the server has closed while they were idle cost a pause, and no Lock.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr())
	d := driverOf(t, p) // the core would ask again
	fill := func() {
		var conns []redis.Conn
		for range p.MaxIdle {
			conns = append(conns, p.Get())
		}
		for _, c := range conns {
			_, err := c.Do("PING")
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		require.Equal(t, p.MaxIdle, p.IdleCount())
	}
	fill()
	s.Do("CLIENT", "KILL", "TYPE", "normal")
	lease := take(t, d, "x", time.Minute)
	fill()
	s.Do("CLIENT", "KILL", "TYPE", "normal")
	require.NoError(t, lease.Release(t.Context()))
}

// A server that closes every connection is not asked for ever.
func TestStaleConnections_andNoOthers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	var accepted atomic.Int64
	done := async(func() error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil //nolint:nilerr // closed
			}
			accepted.Add(1)
			_, _ = io.ReadFull(c, make([]byte, 10))
			_ = c.Close()
		}
	})
	d := driverOf(t, newPool(t, l.Addr().String()))
	lease, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: time.Minute})
	require.Error(t, err)
	assert.NotNil(t, lease, "it may have been taken")
	assert.EqualValues(t, 4, accepted.Load(), "one try, and three more")
	require.NoError(t, l.Close())
	require.NoError(t, await(t, done))
	lease, err = claims.Take(t.Context(), driverOf(t, newPool(t, "127.0.0.1:1")), driver.Request{Name: "x", TTL: time.Minute})
	var dial *net.OpError
	require.ErrorAs(t, err, &dial)
	require.NoError(t, lease.Release(t.Context()), "nothing was sent, and nothing is now")
}

// Contexts that end at any moment of a request, a pipeline or not, leave the pool in order.
func TestCancel_atAnyMoment(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t)
	testserver.Redis(t, testserver.RedisReplicaOf(primary))
	p := newPool(t, primary.Addr(), func(p *redis.Pool) { p.MaxActive, p.Wait = 2, true })
	d := driverOf(t, p, redigo.WaitReplicas(1, 5*time.Second))
	leases := make([]driver.Claim, 50)
	for i := range leases {
		leases[i] = take(t, d, fmt.Sprint(i), time.Minute)
	}
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(rand.N(time.Millisecond), cancel)
		for _, err := range d.ExtendAll(ctx, leases, time.Minute) {
			require.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
		}
		err := leases[0].Extend(ctx, time.Minute)
		require.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
		timer.Stop()
		cancel()
	}
	for i, err := range d.ExtendAll(t.Context(), leases, time.Minute) {
		require.NoError(t, err, "lease %d", i)
	}
	eventually(t, "nothing is under way", func() bool { return p.ActiveCount() == p.IdleCount() })
}

func TestNew_nothingToDialWith(t *testing.T) {
	t.Parallel()
	for _, p := range []*redis.Pool{nil, {}} {
		_, err := redigo.New(p)
		require.ErrorContains(t, err, "redigo pool")
		_, err = redigo.NewDriver(p)
		require.ErrorContains(t, err, "redigo pool")
	}
	_, err := redigo.NewDriver(newPool(t, ""), redigo.WaitReplicas(0, time.Second))
	require.ErrorContains(t, err, "0 replicas")
}

// A pool of one that does not wait: requests of several goroutines share its connection.
func TestPool_ofOneThatDoesNotWait_isEnoughForManyGoroutines(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	var dialled, failed atomic.Int64
	c := clientOf(t, newPool(t, s.Addr(), func(p *redis.Pool) {
		dial := p.DialContext
		p.DialContext = func(ctx context.Context) (redis.Conn, error) {
			dialled.Add(1)
			return dial(ctx)
		}
		p.MaxActive = 1
	}))
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			m := c.Mutex(strconv.Itoa(i))
			for range 50 {
				if err := cmp.Or(m.Lock(t.Context()), m.Unlock(t.Context())); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, failed.Load(), "of 500 pairs")
	assert.Less(t, dialled.Load(), int64(50), "more than one only for what the server is slow to answer")
}

// The application itself takes all connections of a pool.
func TestPool_holdsOutliveOneThatIsUsedUp(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for name, wait := range map[string]bool{"that waits": true, "that does not": false} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, s.Addr(), ofOne, func(p *redis.Pool) { p.Wait = wait })
			c := clientOf(t, p, locker.WithTTL(time.Second))
			m := c.Mutex(name)
			require.NoError(t, m.Lock(t.Context()))
			hog := p.Get()
			defer func() { _ = hog.Close() }()
			before := m.Hold().Deadline()
			eventually(t, "it is renewed", func() bool { return m.Hold().Deadline().Sub(before) > 2*time.Second })
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, c.Mutex(name).TryLock(t.Context()))
		})
	}
}

func TestCounts_aBatchIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	admin := newPool(t, s.Addr()).Get()
	defer func() { _ = admin.Close() }()
	reads := func() (n int) { // by the server, what its own report costs included
		info, err := redis.String(admin.Do("INFO", "stats"))
		_, stats, _ := strings.Cut(info, "total_reads_processed:")
		_, none := fmt.Sscan(stats, &n)
		require.NoError(t, errors.Join(err, none))
		return n
	}
	reads() // connects
	d := driverOf(t, newPool(t, s.Addr()))
	leases := make([]driver.Claim, 10) // which fit into a buffer of redigo, the script too
	for i := range leases {
		leases[i] = take(t, d, fmt.Sprint(i), time.Minute)
	}
	extendAll := func() (roundTrips int) {
		before := reads()
		for i, err := range d.ExtendAll(t.Context(), leases, 2*time.Minute) {
			require.NoError(t, err, "lease %d", i)
		}
		return reads() - before - 1
	}
	extendAll() // loads the script
	// A busy server may read one in two pieces.
	eventually(t, "it is one", func() bool { return extendAll() == 1 })
	eventually(t, "the pipeline that was refused, and one that brings the script", func() bool {
		s.Do("SCRIPT", "FLUSH")
		return extendAll() == 2
	})
}

// The reply to the first try is lost. That the next one finds nobody to ask, or is refused, says
// nothing of the first, which took the lock.
func TestLostReply_thenAFailure_mayHaveTakenTheLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for _, want := range []string{"refused", "WRONGTYPE"} {
		proxy := testserver.NewProxy(t, s.Addr())
		d := driverOf(t, newPool(t, proxy.Addr()))
		require.NoError(t, take(t, d, "other", time.Minute).Release(t.Context()), "there is a connection")
		proxy.HoldReplies(true)
		var lease driver.Claim
		done := async(func() (err error) {
			lease, err = claims.Take(t.Context(), d, driver.Request{Name: want, TTL: time.Minute})
			return err
		})
		eventually(t, "the server has applied the take", func() bool { return harness.RedisHeld(s, script.Key(want)) })
		if want == "refused" {
			proxy.Refuse()
		} else {
			s.Do("DEL", script.Key(want))
			s.Do("SADD", script.Key(want), "no lock")
		}
		proxy.HoldReplies(false)
		proxy.ResetConns()
		require.ErrorContains(t, await(t, done), want)
		require.ErrorContains(t, lease.Release(t.Context()), want, "a release is sent")
	}
}

// A release that was refused by who is no longer the primary, and by one that has not the script, has
// not been tried: the next one that finds nothing is not the second. The connection is not used again.
func TestReadOnly_isNoTry(t *testing.T) {
	t.Parallel()
	before, after := testserver.Redis(t), testserver.Redis(t)
	var addr atomic.Value
	addr.Store(before.Addr())
	d := driverOf(t, newPool(t, "", func(p *redis.Pool) {
		p.DialContext = func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr.Load().(string))
		}
	}))
	lease := take(t, d, "x", time.Minute)
	// A failover has forgotten the hold, and another has come since.
	after.Do("HSET", "{x}", "owner", "another", "token", fmt.Sprint(lease.Token()+1), "before", fmt.Sprint(lease.Token()), "lapsed", fmt.Sprint(lease.Token()-1))
	addr.Store(after.Addr())
	before.Do("REPLICAOF", "127.0.0.1", "1") // of nobody: it keeps its data, and takes no writes
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
}

// Programs over redigo and over go-redis wait in one queue, and the release of each wakes the next,
// whose library is the other.
func TestMixed_bothLibrariesWaitInOneQueue(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	other := testwait.Closed(overgoredis.New(rdb, locker.WithTTL(time.Minute)))(t)
	clients := []*locker.Client{clientOf(t, newPool(t, s.Addr()), locker.WithTTL(time.Minute)), other}
	holder := clients[1].Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	require.ErrorIs(t, clients[0].Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	const n = 6
	got := make(chan int, n)
	var done []<-chan error
	for i := range n {
		m := clients[i%2].Mutex("x")
		done = append(done, async(func() error {
			if err := m.Lock(withTimeout(t, patient)); err != nil {
				return err
			}
			got <- i
			return m.Unlock(t.Context())
		}))
		eventually(t, "it waits", func() bool { return s.Do("ZCARD", keyOf("x")+":queue") == any(int64(i+1)) })
	}
	eventually(t, "both listen", func() bool { return harness.RedisListening(s)(2) })
	require.NoError(t, holder.Unlock(t.Context()))
	for i, d := range done {
		require.NoError(t, await(t, d))
		assert.Equal(t, i, <-got)
	}
}

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redigo://h?replicas=1&replica_timeout=3s", "read_timeout"},
		{"redigo://h?cluster=true", "known are backoff, client_name, dial_timeout,"},
	} {
		_, err := locker.Open(t.Context(), c.url)
		require.ErrorContains(t, err, c.want, c.url)
	}
}

// A handshake that gets no answer ends with its context, and leaves nobody waiting for it.
func TestTLS_aHandshakeThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }() // never accepts
	c := openClient(t, "redigos://"+l.Addr().String())
	start := time.Now()
	require.ErrorIs(t, c.Mutex("x").Lock(withTimeout(t, 100*time.Millisecond)), context.DeadlineExceeded)
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), 2*time.Second)
}
