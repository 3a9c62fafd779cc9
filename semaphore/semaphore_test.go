package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/clienttest"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	_ "github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/semaphore"
)

const name = "exports"

func of(t *testing.T, n int, opts ...locker.Option) *semaphore.Semaphore {
	t.Helper()
	return semaphore.New(locktest.New(t, opts...).Client, name, n)
}

// take has n permits, of s.
func take(t *testing.T, s *semaphore.Semaphore, n int) []*semaphore.Permit {
	t.Helper()
	var permits []*semaphore.Permit
	for range n {
		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		permits = append(permits, p)
	}
	return permits
}

func giveBack(t *testing.T, permits ...*semaphore.Permit) {
	t.Helper()
	for _, p := range permits {
		require.NoError(t, p.Unlock(t.Context()))
	}
}

// wantAllFree fails unless n permits are free, and no more.
func wantAllFree(t *testing.T, n int) {
	t.Helper()
	synctest.Wait() // for what is done in the background
	s := of(t, n)
	permits := take(t, s, n)
	_, err := s.TryAcquire(t.Context())
	require.ErrorIs(t, err, locker.ErrHeld)
	giveBack(t, permits...)
}

// No slot is left unused while somebody waits.
func TestAcquire_aSlotThatIsFreedGoesToAWaiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		held := take(t, of(t, n), n)
		began := time.Now()
		var next []*semaphore.Permit
		for _, freed := range held {
			granted := make(chan *semaphore.Permit, 1)
			s := of(t, n)
			go func() {
				p, err := s.Acquire(t.Context())
				assert.NoError(t, err)
				granted <- p
			}()
			synctest.Wait()
			giveBack(t, freed)
			p := <-granted
			assert.Equal(t, freed.Slot(), p.Slot())
			next = append(next, p)
		}
		giveBack(t, next...)
		assert.Equal(t, began, time.Now())
	})
}

// All slots are freed at once, before any waiter can leave the queues of the others.
func TestAcquire_givesBackWhatItIsGrantedBeyondOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		held := take(t, of(t, n), n)
		began := time.Now()
		var served atomic.Int32
		var permits [n]*semaphore.Permit
		for i := range n {
			s := of(t, n)
			go func() {
				p, err := s.Acquire(t.Context())
				assert.NoError(t, err)
				permits[i] = p
				served.Add(1)
			}()
		}
		synctest.Wait()
		require.Zero(t, served.Load())
		giveBack(t, held...)
		synctest.Wait()
		assert.EqualValues(t, n, served.Load(), "each has one")
		assert.Equal(t, began, time.Now())
		giveBack(t, permits[:]...)
		wantAllFree(t, n)
	})
}

func TestAcquire_cancelledLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		why := errors.New("a reason")
		held := take(t, of(t, n), n)
		ctx, cancel := context.WithCancelCause(t.Context())
		s := of(t, n)
		done := testwait.Go(func() error { _, err := s.Acquire(ctx); return err })
		synctest.Wait()
		cancel(why)
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, locker.ErrHeld)
		giveBack(t, held...)
		wantAllFree(t, n)
	})
}

func TestSemaphore_ofDifferentNTakesSlotsBelowItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := of(t, 2), of(t, 4)
		two := take(t, small, 2)
		for _, p := range two {
			assert.Less(t, p.Slot(), 2)
		}
		_, err := small.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
		others := take(t, large, 2)
		_, err = large.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld, "the largest n is the limit")
		giveBack(t, others...)
		_, err = small.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld, "these are not its slots")
		giveBack(t, two...)
		wantAllFree(t, 4)
	})
}

func TestAcquire_ofAnUnreachableBackendIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		c := locktest.New(t)
		s := semaphore.New(c.Client, name, n)
		held := take(t, of(t, n), n)
		granted := testwait.Go(func() error { // it waits when the outage begins
			p, err := s.Acquire(t.Context())
			if err != nil {
				return err
			}
			return p.Unlock(t.Context())
		})
		synctest.Wait()
		c.Down()
		for _, acquire := range []func(context.Context) (*semaphore.Permit, error){s.Acquire, s.TryAcquire} {
			_, err := acquire(t.Context())
			require.ErrorIs(t, err, locktest.ErrUnreachable)
			require.NotErrorIs(t, err, locker.ErrHeld)
		}
		c.Up()
		giveBack(t, held...)
		require.NoError(t, <-granted)
		wantAllFree(t, n)
	})
}

func TestDo_givesBackAfterAPanicAndReturnsTheFunctionsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := of(t, 2)
		assert.PanicsWithValue(t, "no", func() {
			_ = s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { panic("no") })
		})
		failed := errors.New("failed")
		require.ErrorIs(t, s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return failed }), failed)
		wantAllFree(t, 2)
	})
}

func TestDo_endsItsFunctionsContextWithALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		err := of(t, 2, locker.WithoutRenewal()).Do(t.Context(), func(ctx context.Context, _ *semaphore.Permit) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		require.ErrorIs(t, cause, locker.ErrLost)
		require.ErrorIs(t, err, locker.ErrLost)
		assert.Equal(t, 1, strings.Count(err.Error(), cause.Error()), "the loss is told of once: %v", err)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "unlock", e.Op, "the function was called")
	})
}

func TestNew_ofWhatIsNotValidTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		for what, s := range map[string]*semaphore.Semaphore{
			"none":          semaphore.New(c.Client, name, 0),
			"fewer":         semaphore.New(c.Client, name, -1),
			"an empty name": semaphore.New(c.Client, "", 2),
			"not UTF-8":     semaphore.New(c.Client, "\xff", 2),
			"an option":     semaphore.New(c.Client, name, 2, nil),
		} {
			_, err := s.Acquire(t.Context())
			require.Error(t, err, what)
			require.NotErrorIs(t, err, locker.ErrHeld, what)
			_, err = s.TryAcquire(t.Context())
			require.Error(t, err, what)
			require.Error(t, s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { panic("called") }), what)
		}
		wantAllFree(t, 2)
		s := semaphore.New(c.Client, name, 2)
		require.NoError(t, c.Close())
		_, err := s.Acquire(t.Context())
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}

func ExampleNew() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-semaphore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	s := semaphore.New(client, "exports", 2)
	err = s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
		fmt.Println("one of two:", p.Slot() < 2)
		other, err := s.TryAcquire(ctx)
		if err != nil {
			return err
		}
		fmt.Println("the other:", other.Slot() != p.Slot())
		_, err = s.TryAcquire(ctx)
		fmt.Println("a third:", errors.Is(err, locker.ErrHeld))
		return other.Unlock(ctx)
	})
	fmt.Println(err)
	// Output:
	// one of two: true
	// the other: true
	// a third: true
	// <nil>
}

func TestTryAcquire_beginsWithARandomSlot(t *testing.T) {
	s, seen := of(t, 4), map[int]bool{}
	for range 100 {
		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		seen[p.Slot()] = true
		giveBack(t, p)
	}
	assert.Len(t, seen, 4)
}

// Programs come, wait, leave and are served. At most n hold, tokens of a slot rise, and no permit is left at the end.
func TestOnServers_atMostNHoldAndNothingIsLeaked(t *testing.T) {
	clienttest.OnMemoryAndRedis(t, func(t *testing.T, open clienttest.Open, _ func() func()) {
		const slots = 3
		var turns clienttest.Turns
		var programs []<-chan error
		for i := range 2 * slots {
			s := semaphore.New(open(), name, slots)
			programs = append(programs, testwait.Go(func() error {
				for j := range 8 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if j%2 == 1 { // some leave
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(10*i)*time.Millisecond)
					}
					err := s.Do(ctx, func(_ context.Context, p *semaphore.Permit) error {
						return turns.Take(fmt.Sprint("slot ", p.Slot()), p.Token(), time.Millisecond)
					})
					cancel()
					if err != nil && j%2 == 0 {
						return err
					}
				}
				return nil
			}))
		}
		for _, done := range programs {
			require.NoError(t, <-done)
		}
		s := semaphore.New(open(), name, slots)
		for range slots {
			_, err := s.Acquire(testwait.Context(t, clienttest.Long/2)) // long before what was left would expire
			require.NoError(t, err)
		}
		_, err := s.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
	})
}

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

var evals = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

// scripts counts the scripts that a server has run: each attempt, each step of a queue and each
// release is one.
func scripts(t *testing.T, s *testserver.RedisServer) (n int) {
	t.Helper()
	for _, found := range evals.FindAllStringSubmatch(fmt.Sprint(s.Do("INFO", "commandstats")), -1) {
		calls, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		n += calls
	}
	return n
}

const patience = testwait.Patience(time.Minute)

// The costs that the package's documentation gives, in scripts of one Redis server.
func TestCost_isWhatTheDocumentationSays(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		t.Run(fmt.Sprint("n of ", n), func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
			defer rdb.Close()
			c, err := redis.New(rdb, locker.WithoutRenewal())
			require.NoError(t, err)
			defer c.Close()
			warm, err := semaphore.New(c, "other", 1).Acquire(t.Context()) // the server learns its scripts
			require.NoError(t, err)
			require.NoError(t, warm.Unlock(t.Context()))
			s := semaphore.New(c, "exports", n)
			before := scripts(t, server)
			cost := func() (since int) {
				now := scripts(t, server)
				since, before = now-before, now
				return since
			}

			first, err := s.Acquire(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, cost(), "all are free")
			_ = take(t, s, n-1)
			cost()
			_, err = s.TryAcquire(t.Context())
			require.ErrorIs(t, err, locker.ErrHeld)
			assert.Equal(t, n, cost(), "all are held")

			// queued is in how many queues the waiter stands. Each look is a script, too.
			looks := 0
			queued := func() (all int) {
				for i := range n {
					state, err := c.Inspect(t.Context(), fmt.Sprintf("exports/%d", i))
					require.NoError(t, err)
					all += len(state.Waiters)
				}
				looks += n
				return all
			}
			done := testwait.Go(func() error { _, err := s.Acquire(t.Context()); return err })
			patience.Until(t, "it waits in each queue", func() bool { return queued() == n })
			require.NoError(t, first.Unlock(t.Context()))
			require.NoError(t, patience.Result(t, done))
			patience.Until(t, "it has left each queue", func() bool { return queued() == 0 })
			waited := cost() - looks
			t.Logf("%d requests for a wait", waited)
			assert.Less(t, waited, 4*n+10)
		})
	}
}
