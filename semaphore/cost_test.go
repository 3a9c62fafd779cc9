package semaphore_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/semaphore"
)

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
