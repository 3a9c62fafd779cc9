package script

import (
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// A waiter that is already there has a place that the clock has yet to reach, as if it had been set back.
func TestQueueScripts_aClockThatIsSetBackLetsNobodyInAhead(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	h := s.ask("holder", ttl, 0)
	first := s.ask("pP/a", ttl, 0)
	require.NoError(t, s.rdb.ZAdd(t.Context(), s.keys[1], goredis.Z{Score: float64(first.Place) + 3600e6, Member: "pP/a"}).Err())
	s.ask("pP/b", ttl, 0)
	s.release("holder", h.Token, 0)
	assert.Equal(t, ">pP/a", s.owner())
}

func TestQueueScripts_aForeignMemberOfTheQueueLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"", "foreign", ">", "/", "p", "p/", "s/", "-", ">p/x"} {
		t.Run(foreign, func(t *testing.T) {
			s := newAtServer(t, "P")
			h := s.ask("holder", ttl, 0)
			s.ask("pP/a", ttl, 0)
			require.NoError(t, s.rdb.ZAdd(t.Context(), s.keys[1], goredis.Z{Score: 1, Member: foreign}).Err())
			s.release("holder", h.Token, 0)
			s.expire()
			s.ask("pP/a", ttl, 1)
			a := s.ask("pP/a", ttl, 1)
			assert.EqualValues(t, Granted, a.Status)
			s.release("pP/a", a.Token, 0)
			s.wantIdle()
		})
	}
}

// Of a process that does not take what is claimed for it one claim expires, not one for each of its waiters.
func TestQueueScripts_aClaimThatLapsesTakesItsProcessOffTheQueue(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "hung", "P")
	h := s.ask("holder", ttl, 0)
	for _, w := range []string{"phung/1", "phung/2", "pP/1", "phung/3", "pP/2"} {
		s.ask(w, ttl, 0)
	}
	s.release("holder", h.Token, 0)
	require.Equal(t, ">phung/1", s.owner())
	s.expire()
	s.ask("pP/2", ttl, 5)
	assert.Equal(t, ">pP/1", s.owner(), "by order, not to the one that looked")
	assert.Equal(t, []string{"pP/2"}, s.queue())
	a := s.ask("phung/2", ttl, 2)
	assert.True(t, a.Back, "it lives, and is in its place again")
	assert.Equal(t, []string{"phung/2", "pP/2"}, s.queue())
}

func TestQueueScripts_passesOverWhoDoesNotListen(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	monitor := s.rdb.PSubscribe(t.Context(), "*")
	defer func() { _ = monitor.Close() }()
	_, err := monitor.Receive(t.Context())
	require.NoError(t, err)
	h := s.ask("holder", ttl, 0)
	for _, w := range []string{"pdead/1", "pdead/2", "sdead/3", "pP/1", "pdead/4"} {
		s.ask(w, ttl, 0)
	}
	s.release("holder", h.Token, 0)
	assert.Equal(t, ">pP/1", s.owner())
	a := s.ask("pP/1", ttl, 1)
	s.release("pP/1", a.Token, 0)
	s.wantIdle()
}

func TestQueueScripts_outOfMemory(t *testing.T) {
	t.Parallel()
	s := atServerOf(t, testserver.Redis(t, testserver.RedisConfig("maxmemory-policy noeviction")), "P")
	h := s.ask("holder", ttl, 0)
	place := s.ask("pP/a", ttl, 0).Place
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	fails := func(owner string, place uint64) {
		args := []any{owner, 1000, inTime(int64(place)), ""}
		require.ErrorContains(t, s.rdb.Eval(t.Context(), Take.Source, s.keys, args...).Err(), "OOM")
	}
	fails("pP/b", 0)
	require.EqualValues(t, Held, s.ask("newcomer", ttl, 0).Status)
	require.EqualValues(t, 1, s.run(Extend, []any{"holder", Expiry(2 * ttl)}), "Extend works")
	assert.Greater(t, s.left(), ttl)
	require.EqualValues(t, 1, s.release("holder", h.Token, 0), "so does Unlock")
	assert.Equal(t, ">pP/a", s.owner())
	fails("pP/a", place)
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	a := s.ask("pP/a", ttl, place)
	require.EqualValues(t, Granted, a.Status)
	s.release("pP/a", a.Token, 0)
	s.wantIdle()
	s.forget()
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	fails("new", 0)
	assert.Zero(t, s.rdb.Exists(t.Context(), s.keys...).Val(), "nothing is left behind")
}

func TestQueueScripts_aLostHashOrQueueLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for i, key := range []string{"hash", "queue"} {
		t.Run(key, func(t *testing.T) {
			s := newAtServer(t, "P")
			h := s.ask("holder", ttl, 0)
			first, second := s.ask("pP/a", ttl, 0).Place, s.ask("pP/b", ttl, 0).Place
			require.NoError(t, s.rdb.Del(t.Context(), s.keys[i]).Err())
			if key == "hash" {
				require.Zero(t, s.release("holder", h.Token, 0), "its hold is forgotten")
				require.EqualValues(t, Held, s.ask("newcomer", ttl, 0).Status, "the queue is not")
			} else {
				require.EqualValues(t, Held, s.ask("pP/b", ttl, second).Status)
				require.EqualValues(t, Held, s.ask("pP/a", ttl, first).Status)
				require.EqualValues(t, 1, s.release("holder", h.Token, 0))
			}
			assert.Equal(t, ">pP/a", s.owner(), "in order")
			a := s.ask("pP/a", ttl, first)
			require.EqualValues(t, Granted, a.Status)
			assert.Greater(t, a.Token, h.Token)
			s.release("pP/a", a.Token, 0)
			b := s.ask("pP/b", ttl, second)
			require.EqualValues(t, Granted, b.Status)
			s.release("pP/b", b.Token, 0)
			s.wantIdle()
		})
	}
}

// One waiter is told of a release, and nobody is asked whether the others are there.
func TestQueueScripts_aHandOverCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	cost := map[int]map[string]int{}
	for _, n := range []int{2, 200} {
		s := atServerOf(t, testserver.Redis(t), "P")
		h := s.ask("holder", ttl, 0)
		for i := range n {
			s.ask(fmt.Sprintf("pP/%d", i), ttl, 0)
		}
		assert.Zero(t, s.server.Calls()["publish"], "who holds the lock has not asked to be told")
		require.NoError(t, s.rdb.ConfigResetStat(t.Context()).Err())
		require.EqualValues(t, 1, s.release("holder", h.Token, 0))
		require.EqualValues(t, Granted, s.ask("pP/0", ttl, 1).Status)
		cost[n] = map[string]int{}
		for _, command := range []string{"publish", "pubsub|numsub", "zpopmin", "zrange", "zadd", "hmget", "hset"} {
			cost[n][command] = s.server.Calls()[command]
		}
	}
	assert.Equal(t, cost[2], cost[200])
	assert.Equal(t, 1, cost[200]["publish"])
}

// The first that comes tells the processes that hold the lock and have asked, and those behind it
// have nothing to tell.
func TestNotify(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	p, q := s.subscribe("P"), s.subscribe("Q")
	noted := func() string { return s.rdb.HGet(t.Context(), s.keys[0], "queue").Val() }
	ask := func(owner, process string, want int64) {
		t.Helper()
		require.Equal(t, want, s.run(Notify, []any{owner, process}))
	}
	require.Equal(t, Granted, int(s.ask("first", ttl, 0).Status))
	ask("another", "pP/", 0)
	assert.Empty(t, noted(), "who does not hold the lock is not told")
	ask("first", "", 0)
	assert.Empty(t, noted(), "nor one that is not subscribed")
	require.Equal(t, int64(1), s.run(Downgrade, []any{"first"}))
	s.share(ttl, "~share")
	for range 2 {
		ask("first", "pP/", 0)
		ask("~share", "pQ/", 0)
		assert.Equal(t, "pP/pQ/", noted())
	}
	require.EqualValues(t, Held, s.ask("tries", ttl, 0).Status)
	assert.Equal(t, "pP/pQ/", noted(), "of one that does not wait nobody is told")

	require.EqualValues(t, Held, s.ask("pR/waits", ttl, 0).Status)
	assert.Equal(t, "pP/", (<-p).Payload)
	assert.Equal(t, "pQ/", (<-q).Payload)
	assert.Equal(t, "1", noted())
	require.EqualValues(t, Held, s.ask("pR/too", ttl, 0).Status)
	ask("first", "pP/", 1)
	assert.Empty(t, p, "once is enough")
}

// A hold that has ended leaves nobody to be told of the next one's waiters for long, and of many
// that have asked those are forgotten which did first: they look by themselves.
func TestNotify_isBounded(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	noted := func() string { return s.rdb.HGet(t.Context(), s.keys[0], "queue").Val() }
	first := s.ask("first", ttl, 0)
	for i := range 1000 {
		require.EqualValues(t, 0, s.run(Notify, []any{"first", fmt.Sprintf("pPROCESS%05d/", i)}))
		require.Less(t, len(noted()), 1100)
	}
	assert.True(t, strings.HasSuffix(noted(), "pPROCESS00999/"))
	require.EqualValues(t, 1, s.release("first", first.Token, 0))
	assert.Empty(t, noted())

	s.ask("first", ttl, 0)
	require.EqualValues(t, 0, s.run(Notify, []any{"first", "pP/"}))
	s.expire()
	require.EqualValues(t, 0, s.run(Notify, []any{"first", "pQ/"}))
	assert.Equal(t, "pP/", noted(), "of a hold that has expired nothing is noted")
	second := s.ask("second", ttl, 0)
	require.EqualValues(t, Granted, second.Status)
	require.EqualValues(t, 1, s.release("second", second.Token, 0))
	assert.Empty(t, noted())
	s.wantIdle()
}
