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

// wantEndsWithCtx fails unless a Lock whose context ends in a moment returns then, and no later.
func wantEndsWithCtx(t *testing.T, c *locker.Client) {
	t.Helper()
	start := time.Now()
	err := c.Mutex("x").Lock(withTimeout(t, 100*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
	assert.Less(t, time.Since(start), 2*time.Second)
}

// A pool's functions that know no context, and go on long after it has ended, or after half of the
// TTL if it has no end.
func TestPool_functionsThatBlock(t *testing.T) {
	t.Parallel()
	for _, endless := range []bool{false, true} {
		functionsThatBlock(t, endless)
	}
}

func functionsThatBlock(t *testing.T, endless bool) {
	t.Helper()
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
		t.Run(fmt.Sprintf("%s, endless: %v", name, endless), func(t *testing.T) {
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
			if endless {
				require.Error(t, await(t, async(func() error { return c.Mutex("x").TryLock(context.Background()) })))
			} else {
				wantEndsWithCtx(t, c)
			}
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
	for name, closeAll := range map[string]func(){
		"CLIENT KILL": func() { s.Do("CLIENT", "KILL", "TYPE", "normal") },
		"restart":     s.Restart,
	} {
		fill()
		closeAll()
		lease := take(t, d, name, time.Minute)
		fill()
		closeAll()
		if err := lease.Release(t.Context()); name == "restart" {
			require.ErrorIs(t, err, locker.ErrLost, name)
		} else {
			require.NoError(t, err, name)
		}
	}
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
	lease, err = claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: time.Minute})
	var dial *net.OpError
	require.ErrorAs(t, err, &dial)
	require.NoError(t, lease.Release(t.Context()), "nothing was sent, and nothing is now")
}

// A connection to what has become a replica is not used again: the next one may lead to the primary.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t)
	replica := testserver.Redis(t, testserver.RedisReplicaOf(primary))
	target := atomic.Pointer[string]{}
	addr, wrong := primary.Addr(), replica.Addr()
	target.Store(&wrong)
	p := newPool(t, "", func(p *redis.Pool) {
		p.DialContext = func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", *target.Load()) }
	})
	m := clientOf(t, p).Mutex("x")
	err := m.Lock(t.Context())
	var refusal redis.Error
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "READONLY")
	assert.Zero(t, p.ActiveCount(), "connections to a replica")
	idle := p.Get()
	_, err = idle.Do("PING")
	require.NoError(t, err)
	require.NoError(t, idle.Close())
	target.Store(&addr)
	assert.NoError(t, m.Lock(t.Context()))
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
	assert.Equal(t, 1, extendAll())
	s.Do("SCRIPT", "FLUSH")
	assert.Equal(t, 2, extendAll(), "the pipeline that was refused, and one that brings the script")
}

const faultyTTL = 10 * time.Second

// The reply to the first try is lost. That the next one finds nobody to ask, or is refused, says
// nothing of the first, which took the lock.
func TestLostReply_thenAFailure_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused: %v", refused), func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			proxy := testserver.NewProxy(t, s.Addr())
			var away atomic.Bool
			c := clientOf(t, newPool(t, proxy.Addr(), func(p *redis.Pool) {
				dial := p.DialContext
				p.DialContext = func(ctx context.Context) (redis.Conn, error) {
					if away.Load() {
						return nil, errors.New("away")
					}
					return dial(ctx)
				}
			}), locker.WithTTL(faultyTTL), locker.WithoutRenewal())
			m := c.Mutex("x")
			require.NoError(t, errors.Join(m.Lock(t.Context()), m.Unlock(t.Context())), "there is a connection")
			proxy.HoldReplies(true)
			done := async(func() error { return m.Lock(t.Context()) })
			eventually(t, "the server has applied the take", func() bool { return harness.RedisHeld(s, keyOf("x")) })
			dump, want := s.Do("DUMP", keyOf("x")).(string), "away"
			if refused {
				want = "WRONGTYPE"
				s.Do("DEL", keyOf("x"))
				s.Do("SADD", keyOf("x"), "no lock")
			}
			away.Store(!refused)
			proxy.HoldReplies(false)
			proxy.ResetConns()
			require.ErrorContains(t, await(t, done), want)
			if refused {
				s.Do("RESTORE", keyOf("x"), fmt.Sprint((faultyTTL + script.Keep).Milliseconds()), dump, "REPLACE")
			}
			away.Store(false)
			testwait.Patience(faultyTTL/2).Until(t, "what the attempt took is released", func() bool { return !harness.RedisHeld(s, keyOf("x")) })
		})
	}
}

// A release that was refused for want of the script has not been tried: the next one that finds
// nothing is not the second.
func TestNoScript_isNoTry(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	d := driverOf(t, newPool(t, s.Addr()))
	lease := take(t, d, "x", time.Minute)
	forget(s, lease)
	s.Do("SCRIPT", "FLUSH")
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
}

// Nor has one that was refused by who is no longer the primary.
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
	forget(after, lease)
	addr.Store(after.Addr())
	before.Do("REPLICAOF", "127.0.0.1", "1") // of nobody: it keeps its data, and takes no writes
	require.ErrorIs(t, lease.Release(t.Context()), locker.ErrLost)
}

// forget leaves on s what a failover leaves that has forgotten the hold, when another has come
// since.
func forget(s *testserver.RedisServer, lease driver.Claim) {
	s.Do("HSET", "{x}", "owner", "another", "token", fmt.Sprint(lease.Token()+1), "before", fmt.Sprint(lease.Token()), "lapsed", fmt.Sprint(lease.Token()-1))
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
	wantEndsWithCtx(t, c)
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), 2*time.Second)
}
