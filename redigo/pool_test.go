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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redigo"
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

// A pool's functions that know no context, and go on long after it has ended.
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
			c := clientOf(t, p)
			if name != "Dial" {
				require.NoError(t, p.Get().Close(), "an idle one")
			}
			blocked.Store(true)
			wantEndsWithCtx(t, c)
			blocked.Store(false)
			close(unblock)
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()), "the pool has its one place back")
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, c.Close())
			assert.Equal(t, p.IdleCount(), p.ActiveCount(), "Close has waited for what came late")
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
	for _, err := range d.ExtendAll(withTimeout(t, 2*time.Second), slices.Repeat([]driver.Lease{lease}, 3000), time.Minute) {
		if err != context.DeadlineExceeded { //nolint:errorlint // 3,000 of them
			t.Fatalf("want %v, got %v", context.DeadlineExceeded, err)
		}
	}
	assert.Less(t, time.Since(start), 5*time.Second)
	assert.Zero(t, p.ActiveCount())
}

// Connections that the server has closed while they were idle cost a pause, and no Lock.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr())
	m := clientOf(t, p).Mutex("x")
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
		"CLIENT KILL": func() { ask(t, s, "CLIENT", "KILL", "TYPE", "normal") },
		"restart":     s.Restart,
	} {
		fill()
		closeAll()
		require.NoError(t, m.Lock(t.Context()), name)
		fill()
		closeAll()
		if name == "restart" {
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost, name)
		} else {
			require.NoError(t, m.Unlock(t.Context()), name)
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
	leases := make([]driver.Lease, 50)
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

// redigo panics if a pool that waits is closed, and asked for a connection when the context ends.
func TestNew_aPoolThatIsClosed(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr(), ofOne)
	d := driverOf(t, p)
	take(t, d, "x", time.Minute)
	require.NoError(t, p.Close())
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_, err := claims.Take(ctx, d, driver.Request{Name: "y", TTL: time.Minute})
		require.Error(t, err)
	}
}

func TestNew_leavesThePoolOpen(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr())
	c := clientOf(t, p)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	require.NoError(t, c.Close())
	assert.False(t, isHeld(t, s, "x"), "Close releases")
	assert.NoError(t, clientOf(t, p).Mutex("x").Lock(t.Context()))
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
	p := newPool(t, s.Addr(), func(p *redis.Pool) { p.MaxActive = 1 })
	c := clientOf(t, p)
	var failed atomic.Int64
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
