package redis_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What happens to the server while many wait. Who holds may lose by it, who waits must not.
func TestQueue_manyWaitersOutlive(t *testing.T) {
	t.Parallel()
	many := 20
	if testwait.Thorough() {
		many = 100
	}
	for name, strike := range map[string]func(t *testing.T, s *testserver.RedisServer, r *queueTest){
		"FLUSHALL":     func(t *testing.T, _ *testserver.RedisServer, r *queueTest) { do(t, r, "FLUSHALL") },
		"SCRIPT FLUSH": func(t *testing.T, _ *testserver.RedisServer, r *queueTest) { do(t, r, "SCRIPT", "FLUSH") },
		"CLIENT KILL TYPE normal": func(t *testing.T, _ *testserver.RedisServer, r *queueTest) {
			do(t, r, "CLIENT", "KILL", "TYPE", "normal")
		},
		"CLIENT KILL TYPE pubsub": func(t *testing.T, _ *testserver.RedisServer, r *queueTest) {
			do(t, r, "CLIENT", "KILL", "TYPE", "pubsub")
		},
		"a restart without data": func(_ *testing.T, s *testserver.RedisServer, _ *queueTest) { s.Restart() },
		"a pause": func(_ *testing.T, s *testserver.RedisServer, _ *queueTest) {
			s.Stop()
			time.Sleep(time.Second)
			s.Continue()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			r := newQueueTest(t, connect(t, s.Addr()))
			unlocker := newClient(t, s.Addr()).Mutex(r.name)
			require.NoError(t, unlocker.Lock(t.Context()))
			all := r.joinAll(t.Context(), many, newClients(t, s.Addr(), 4)...)
			r.subscribed(4)
			strike(t, s, r)
			_ = unlocker.Unlock(t.Context())
			wantServed(t, all)
			r.wantEmpty()
		})
	}
}

func do(t *testing.T, r *queueTest, args ...any) {
	t.Helper()
	require.NoError(t, r.direct.Do(t.Context(), args...).Err())
}

// waitingRights is what a user needs beside rights in order to wait, and to have others wait.
var waitingRights = []string{"zadd", "zrem", "zrange", "zscore", "zcard", "zpopmin", "publish", "pubsub|numsub", "subscribe", "unsubscribe", "ping"}

func queueUser(name, channels string, without ...string) string {
	all := slices.DeleteFunc(slices.Concat(rights, waitingRights), func(r string) bool { return slices.Contains(without, r) })
	return userWith(name, all) + " " + channels
}

// While one who is subscribed comes again and again, one who may not is served in its turn.
func TestQueueACL_whoMayNotListenDoesNotStarve(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(queueUser("polls", "resetchannels")))
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	stop := r.keepBusy(newClients(t, s.Addr(), 2))
	all := r.joinAll(t.Context(), 3, clientOf(t, connect(t, s.Addr(), heedingCtx, as("polls"))))
	unlock()
	wantServed(t, all)
	stop()
	r.wantEmpty()
}

// keepBusy has others wait for the lock all the time, until what it returns is called.
func (r *queueTest) keepBusy(others []*locker.Client) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	var busy []<-chan error
	for id := range 3 * len(others) {
		busy = append(busy, async(func() error {
			for ctx.Err() == nil {
				if err := r.serve(ctx, others[id%len(others)]); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		}))
	}
	r.subscribed(len(others))
	return func() {
		r.t.Helper()
		cancel()
		wantServed(r.t, busy)
	}
}
