package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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

func TestQueue_aMonitorThatHearsEverythingIsNobody(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	monitor := r.direct.PSubscribe(t.Context(), "*")
	defer func() { _ = monitor.Close() }()
	_, err := monitor.Receive(t.Context())
	require.NoError(t, err)
	unlock := r.hold(newClient(t, s.Addr()))
	for i := range 20 {
		dead := goredis.Z{Score: float64(i), Member: fmt.Sprintf("pdead%d/%d", i%7, i)}
		require.NoError(t, r.direct.ZAdd(t.Context(), r.queueKey(), dead).Err())
	}
	all := r.joinAll(t.Context(), 3, newClients(t, s.Addr(), 3)...)
	r.subscribed(3)
	resetStats(t, r.direct)
	unlock()
	wantServed(t, all)
	r.wantOrder(0, 1, 2)
	assert.Equal(t, 3, commandCalls(t, r.direct)["publish"], "claims, none of them for the dead")
	r.wantEmpty()
}

func TestQueue_outOfMemoryHandsOverAndServesLater(t *testing.T) {
	testwait.OnlyNightly(t, "TestQueueScripts_outOfMemory shows it of the scripts")
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisArgs("--maxmemory-policy", "noeviction"))
	r := newQueueTest(t, connect(t, s.Addr()))
	unlock := r.hold(newClient(t, s.Addr()))
	c := newClient(t, s.Addr())
	all := r.joinAll(t.Context(), 3, c)
	r.subscribed(1)
	require.NoError(t, r.direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
	wantOwnError(t, newClient(t, s.Addr()).Mutex(r.name).Lock(t.Context()), "OOM")
	unlock()
	time.Sleep(3 * time.Second) // longer than a claim lasts
	require.NoError(t, r.direct.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wantServed(t, all)
	r.wantEmpty()
}

// waitingRights is what a user needs beside rights in order to wait, and to have others wait.
var waitingRights = []string{"zadd", "zrem", "zrange", "zscore", "zcard", "zpopmin", "publish", "pubsub|numsub", "subscribe", "unsubscribe", "ping"}

func queueUser(name, channels string, without ...string) string {
	all := slices.DeleteFunc(slices.Concat(rights, waitingRights), func(r string) bool { return slices.Contains(without, r) })
	return userWith(name, all) + " " + channels
}

// Users whose rights differ share a lock: everybody is served, whoever hands over to whom.
func TestQueueACL_usersWithFewerRightsWaitToo(t *testing.T) {
	t.Parallel()
	users := map[string]string{
		"all":     queueUser("all", "allchannels"),
		"polls":   queueUser("polls", "resetchannels"),
		"mute":    queueUser("mute", "allchannels", "publish"),
		"blind":   queueUser("blind", "allchannels", "pubsub|numsub"),
		"neither": queueUser("neither", "resetchannels", "publish", "pubsub|numsub", "subscribe"),
	}
	var lines []string
	for _, line := range users {
		lines = append(lines, line)
	}
	for _, mix := range [][]string{{"all"}, {"polls"}, {"mute"}, {"blind"}, {"neither"}, {"all", "polls"}, {"polls", "all", "mute", "blind", "neither"}} {
		t.Run(fmt.Sprint(mix), func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t, testserver.RedisConfig(lines...))
			r := newQueueTest(t, connect(t, s.Addr()))
			var clients []*locker.Client
			for _, user := range mix {
				clients = append(clients, clientOf(t, connect(t, s.Addr(), heedingCtx, as(user))))
			}
			unlock := r.hold(clients[0])
			var all []<-chan error
			for id := range 2 * len(mix) {
				all = append(all, async(func() error { return r.serve(t.Context(), clients[id%len(mix)], id) }))
			}
			eventually(t, "all wait", func() bool { return r.length() >= 2*len(mix) })
			unlock()
			wantServed(t, all)
			r.wantEmpty()
		})
	}
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

func TestQueueACL_withoutSortedSetsOneLocksButDoesNotWait(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig(userWith("old", rights)))
	r := newQueueTest(t, connect(t, s.Addr()))
	old := clientOf(t, connect(t, s.Addr(), heedingCtx, as("old")))
	unlock := r.hold(old)
	wantNoPerm(t, old.Mutex(r.name).Lock(t.Context()))
	all := r.joinAll(t.Context(), 3, newClients(t, s.Addr(), 3)...)
	r.subscribed(3)
	unlock()
	wantServed(t, all)
	r.wantEmpty()
	require.NoError(t, old.Mutex(r.name).TryLock(t.Context()), "afterwards")
}

// keepBusy has others wait for the lock all the time, until what it returns is called.
func (r *queueTest) keepBusy(others []*locker.Client) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	var busy []<-chan error
	for id := range 3 * len(others) {
		busy = append(busy, async(func() error {
			for ctx.Err() == nil {
				if err := r.serve(ctx, others[id%len(others)], id); err != nil && ctx.Err() == nil {
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

// Each of them gives up at a random moment, often that of being handed the lock.
func TestQueue_cancelsRacingHandOversLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	clients := newClients(t, s.Addr(), 3)
	random := rand.New(rand.NewPCG(1, 2))
	served, gaveUp := 0, 0
	for range 6 {
		unlock := r.hold(clients[0])
		var all []<-chan error
		for id := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(60*time.Millisecond))))
			all = append(all, async(func() error { defer cancel(); return r.serve(ctx, clients[id%3], id) }))
		}
		time.Sleep(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
		unlock()
		for _, done := range all {
			if err := await(t, done); err == nil {
				served++
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				gaveUp++
			}
		}
		r.wantEmpty()
	}
	t.Logf("%d were served, %d gave up", served, gaveUp)
	assert.Positive(t, served)
	assert.Positive(t, gaveUp)
}

// The lock is claimed for one that gives up, and the message is on its way to it.
func TestQueue_aWaiterCancelledWhileTheLockIsClaimedForItPassesItOn(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := r.join(ctx, newClientThatSubscribesAt(t, r.direct.Options().Addr, p.Addr()), 0)
	r.subscribed(1)
	second := r.join(t.Context(), healthy, 1)
	r.subscribed(2)
	waiter := r.queued()[0]
	p.HoldReplies(true)
	unlock()
	eventually(t, "the lock is claimed for the first", func() bool { return r.owner() == ">"+waiter || r.length() == 0 })
	cancel()
	require.ErrorIs(t, await(t, first), context.Canceled)
	require.NoError(t, await(t, second))
	p.ReleaseReplies()
	r.wantOrder(1)
	r.wantEmpty()
}

// The same, and its claim is on its way to the server when it gives up.
func TestQueue_aWaiterCancelledWhileItClaimsPassesItOn(t *testing.T) {
	t.Parallel()
	r, p, unlock, healthy := faultyRoom(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := r.join(ctx, newClient(t, p.Addr()), 0)
	r.subscribed(1)
	second := r.join(t.Context(), healthy, 1)
	r.subscribed(2)
	p.HoldRequests(true)
	unlock()
	eventually(t, "its claim is on its way", func() bool { n, _ := p.Held(); return n > 0 })
	cancel()
	require.ErrorIs(t, await(t, first), context.Canceled)
	p.ReleaseRequests()
	require.NoError(t, await(t, second))
	r.wantOrder(1)
	r.wantEmpty()
}

func TestQueue_closeWhileWaiting(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r := newQueueTest(t, connect(t, s.Addr()))
	for name, when := range map[string]func(unlock func()){
		"before anyone is subscribed":      func(func()) {},
		"while all are subscribed":         func(func()) { r.subscribed(2) },
		"while they are handed it":         func(unlock func()) { r.subscribed(2); unlock() },
		"while some begin to":              func(func()) { eventually(t, "one is subscribed", func() bool { return len(r.subscribers()) > 0 }) },
		"after having lost the subscriber": func(func()) { r.subscribed(2); do(t, r, "CLIENT", "KILL", "TYPE", "pubsub") },
	} {
		t.Run(name, func(t *testing.T) {
			unlocker := newClient(t, s.Addr()).Mutex(r.name)
			require.NoError(t, unlocker.Lock(t.Context()))
			closing, staying := newClient(t, s.Addr()), newClient(t, s.Addr())
			all := r.joinAll(t.Context(), 10, closing, staying)
			when(func() { require.NoError(t, unlocker.Unlock(t.Context())) })
			require.NoError(t, closing.Close())
			if unlocker.FencingToken() != 0 {
				require.NoError(t, unlocker.Unlock(t.Context()))
			}
			for id, done := range all {
				err := await(t, done)
				if id%2 == 1 {
					require.NoError(t, err)
				} else if err != nil && !errors.Is(err, locker.ErrLost) { // it had the lock when its Client was closed
					require.ErrorIs(t, err, locker.ErrClosed)
				}
			}
			r.wantEmpty()
			require.NoError(t, staying.Close())
			eventually(t, "nobody is subscribed", func() bool { return len(r.subscribers()) == 0 })
		})
	}
}
