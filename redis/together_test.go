package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

// pairsAtOnce has goroutines lock and unlock names of their own.
func pairsAtOnce(t *testing.T, c *locker.Client, goroutines, pairs int) {
	t.Helper()
	pairsWithFaults(t, c, goroutines, pairs, func(err error) bool { return assert.NoError(t, err) })
}

// pairsWithFaults has Unlock say what unlocked returns true for.
func pairsWithFaults(t *testing.T, c *locker.Client, goroutines, pairs int, unlocked func(error) bool) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			m := c.Mutex(fmt.Sprint(i))
			last := uint64(0)
			for range pairs {
				if err := m.Lock(t.Context()); !assert.NoError(t, err) {
					return
				}
				assert.Greater(t, m.FencingToken(), last)
				last = m.FencingToken()
				if !unlocked(m.Unlock(t.Context())) {
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestTogether_goroutinesShareRoundTrips(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	var sent roundTrips
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb)
	warm(t, c)
	rdb.AddHook(&sent)
	const (
		goroutines = 64
		pairs      = 20
	)
	pairsAtOnce(t, c, goroutines, pairs)
	t.Log(sent.pipelines.Load(), "pipelines and", sent.commands.Load(), "scripts alone for", 2*goroutines*pairs, "calls")
	assert.Less(t, sent.pipelines.Load()+sent.commands.Load(), int64(2*goroutines*pairs/4), "round trips")
	assert.EqualValues(t, 2*goroutines*pairs, sent.pipelined.Load()+sent.commands.Load(), "a script for each")
}

// Each of the scripts in a round trip is loaded where it is missing, and runs once.
func TestTogether_aServerThatHasLostTheScripts(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	admin := connect(t, s.Addr())
	c := newClient(t, s.Addr())
	stop := make(chan struct{})
	flushed := async(func() error {
		for n := 0; ; n++ {
			select {
			case <-stop:
				assert.Greater(t, n, 3, "it lost them often")
				return nil
			default:
			}
			if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
				return err
			}
			time.Sleep(tick)
		}
	})
	pairsAtOnce(t, c, 32, 20)
	close(stop)
	require.NoError(t, await(t, flushed))
}

// Connections break under whatever is on them: no Lock fails, no hold is lost, and no lock stays behind. An Unlock whose first
// three tries have met connections that were broken says so, and its release goes on.
func TestTogether_connectionsThatBreak(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := testserver.NewProxy(t, s.Addr())
	c := newClient(t, p.Addr(), locker.WithTTL(20*time.Second))
	stop := make(chan struct{})
	var pairs atomic.Int64
	broken := async(func() error {
		for last := int64(0); ; {
			select {
			case <-stop:
				return nil
			case <-time.After(50 * tick):
				if now := pairs.Load(); now > last+10 { // else a call of a slow machine meets nothing but broken connections
					p.ResetConns()
					last = now
				}
			}
		}
	})
	const goroutines = 32
	pairsWithFaults(t, c, goroutines, 30, func(err error) bool {
		pairs.Add(1)
		return assert.NotErrorIs(t, err, locker.ErrLost) && assert.NotErrorIs(t, err, locker.ErrNotHeld)
	})
	close(stop)
	require.NoError(t, await(t, broken))
	other := newClient(t, s.Addr())
	for i := range goroutines {
		m := other.Mutex(fmt.Sprint(i))
		eventually(t, "it is free", func() bool { return m.TryLock(t.Context()) == nil })
		require.NoError(t, m.Unlock(t.Context()))
	}
}

// What hangs ends with its context all the same, and what is asked once the server is back is answered.
func TestTogether_aServerThatStopped(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr(), func(o *goredis.Options) { o.ReadTimeout = time.Second })
	c := clientOf(t, rdb, locker.WithTTL(3*time.Second))
	require.NoError(t, c.Mutex("first").Lock(t.Context()))
	s.Stop()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, c.Mutex(fmt.Sprint(i)).Lock(ctx), context.DeadlineExceeded)
		})
	}
	wg.Wait()
	s.Continue()
	for i := range 16 {
		m := c.Mutex(fmt.Sprint(i))
		require.NoError(t, m.Lock(t.Context()), "what came of the attempt that was given up does not stay")
		require.NoError(t, m.Unlock(t.Context()))
	}
}

// A connection that hangs costs those who are not on it a moment, and no time-out of the client library's.
func TestTogether_aConnectionThatHangs(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := testserver.NewProxy(t, s.Addr())
	rdb := connect(t, p.Addr(), func(o *goredis.Options) { o.ReadTimeout = time.Minute })
	loadScripts(t, connect(t, s.Addr()))
	c := clientOf(t, rdb, locker.WithTTL(2*time.Minute))
	require.NoError(t, c.Mutex("warm").Lock(t.Context()))
	p.HoldRequests(true)
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	onTheWay := 0
	for i := range 2 {
		hanging.Go(func() {
			assert.ErrorIs(t, c.Mutex(fmt.Sprint("hangs", i)).Lock(ctx), context.Canceled)
		})
		before := onTheWay
		eventually(t, "its request is on its way", func() bool { onTheWay, _ = p.Held(); return onTheWay > before })
	}
	p.HoldRequests(false) // what is on its way stays there
	other := c.Mutex("other")
	require.NoError(t, other.Lock(withTimeout(t, 10*time.Second)))
	require.NoError(t, other.Unlock(withTimeout(t, 10*time.Second)))
	cancel()
	hanging.Wait()
	p.ReleaseRequests()
}

// A grant that too few replicas have is an error for its own caller and no other of the batch, and is given back
// by the time that the Client is closed.
func TestTogether_grantsThatNoReplicaHas(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	look := connect(t, s.Addr())
	d := driverOf(t, connect(t, s.Addr()), redis.WaitReplicas(1, 5*tick))
	c, err := locker.New(d)
	require.NoError(t, err)
	const goroutines = 16
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for n := range 5 {
				if err := c.Mutex(fmt.Sprint(5*i + n)).TryLock(t.Context()); !assert.ErrorContains(t, err, "replicas") {
					return
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
	for i := range 5 * goroutines {
		assert.False(t, isHeldAt(t, look, keyOf(fmt.Sprint(i))), "given back")
	}
}
