package redisscript

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestQueueScripts_handOverInOrder(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	told := s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	waiters := []string{"pP/c", "pP/a", "pP/b"}
	for _, w := range waiters {
		require.EqualValues(t, held, s.ask(w, ttl, 0).status)
	}
	owner, token := "holder", h.token
	for _, w := range waiters {
		require.EqualValues(t, 1, s.release(owner, token, 0))
		assert.Equal(t, ">"+w, s.owner())
		assert.Equal(t, w, (<-told).Payload)
		require.EqualValues(t, held, s.ask("newcomer", ttl, 0).status, "a newcomer while the lock is claimed for %s", w)
		a := s.ask(w, ttl, 7)
		require.EqualValues(t, granted, a.status)
		require.Greater(t, a.token, token)
		owner, token = w, a.token
	}
	require.EqualValues(t, 1, s.release(owner, token, 0))
	s.wantIdle()
}

// Its process does not listen yet, but it asks, and so is alive.
func TestQueueScripts_theFirstWaiterThatAsksIsNotPassedOver(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("Q")
	s.ask("holder", ttl, 0)
	place := s.ask("pP/a", ttl, 0).place
	require.EqualValues(t, held, s.ask("pQ/b", ttl, 0).status)
	s.expire()
	require.EqualValues(t, granted, s.ask("pP/a", ttl, place).status)
	assert.Equal(t, []string{"pQ/b"}, s.queue())
}

func TestQueueScripts_aReleaseThatIsSentAgainAfterTheHandOverIsASuccess(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	place := s.ask("pP/a", ttl, 0).place
	s.ask("pP/b", ttl, 0)
	require.EqualValues(t, 1, s.release("holder", h.token, 0))
	require.EqualValues(t, 1, s.release("holder", h.token, 1), "while the lock is claimed")
	assert.Equal(t, ">pP/a", s.owner(), "the claim is left alone")
	a := s.ask("pP/a", ttl, place)
	require.EqualValues(t, 1, s.release("holder", h.token, 1), "while the next one holds")
	assert.Equal(t, "pP/a", s.owner())
	require.EqualValues(t, 1, s.release("pP/a", a.token, 0))
	require.EqualValues(t, 1, s.release("holder", h.token, 1), "while it is claimed for the one after that")
	s.expire()
	require.EqualValues(t, granted, s.ask("other", ttl, 0).status, "the claim has expired, which is no hold that has")
	require.EqualValues(t, 1, s.release("pP/a", a.token, 1))
	assert.Equal(t, "other", s.owner())
}

func TestQueueScripts_aReleaseOfAHoldThatLapsedIsNone(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	place := s.ask("pP/a", ttl, 0).place
	s.expire()
	require.Zero(t, s.release("holder", h.token, 0))
	require.EqualValues(t, held, s.ask("newcomer", ttl, 0).status, "it has the lock claimed for the waiter")
	assert.Equal(t, ">pP/a", s.owner())
	for sent := range 2 {
		require.Zero(t, s.release("holder", h.token, sent), "claimed, sent %d times before", sent)
	}
	require.EqualValues(t, granted, s.ask("pP/a", ttl, place).status)
	for sent := range 2 {
		require.Zero(t, s.release("holder", h.token, sent), "held, sent %d times before", sent)
	}
	assert.Equal(t, "pP/a", s.owner())
}

// The requests of a waiter, each late or twice, in every order that the network can give them.
func TestQueueScripts_requestsThatComeLateOrTwice(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(s *atServer, token int64){
		"enqueue after leave": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.release("pP/a", 0, 0)
			s.ask("pP/a", ttl, 0)
			s.release("holder", token, 0)
			s.release(">pP/a", 1, 0) // declined by its process, which does not know it
		},
		"leave twice": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.release("pP/a", 0, 0)
			assert.Zero(s.t, s.release("pP/a", 0, 1))
			s.release("holder", token, 0)
		},
		"leave after the claim": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.ask("pP/b", ttl, 0)
			s.release("holder", token, 0)
			s.release("pP/a", 0, 0)
			assert.Equal(s.t, ">pP/b", s.owner(), "passed on")
			s.release("pP/a", 0, 1)
			assert.Equal(s.t, ">pP/b", s.owner(), "once")
			s.release("pP/b", 0, 0)
		},
		"decline after the grant": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.release("holder", token, 0)
			a := s.ask("pP/a", ttl, 1)
			assert.Zero(s.t, s.release(">pP/a", 1, 0))
			assert.Equal(s.t, "pP/a", s.owner(), "a hold is not declined")
			s.release("pP/a", a.token, 0)
		},
		"decline and leave": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.ask("pP/b", ttl, 0)
			s.release("holder", token, 0)
			s.release(">pP/a", 1, 0)
			s.release("pP/a", 0, 0)
			assert.Equal(s.t, ">pP/b", s.owner())
			s.release(">pP/b", 1, 0)
		},
		"claim twice": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.release("holder", token, 0)
			first, again := s.ask("pP/a", ttl, 1), s.ask("pP/a", ttl, 1)
			assert.Equal(s.t, first.token, again.token)
			s.release("pP/a", first.token, 0)
		},
		"claim after the claim has expired, before anyone looked": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.release("holder", token, 0)
			s.expire()
			a := s.ask("pP/a", ttl, 1)
			assert.EqualValues(s.t, granted, a.status)
			s.release("pP/a", a.token, 0)
		},
		"claim after another has taken over": func(s *atServer, token int64) {
			place := s.ask("pP/a", ttl, 0).place
			s.release("holder", token, 0)
			s.expire()
			other := s.ask("other", ttl, 0)
			a := s.ask("pP/a", ttl, place)
			assert.EqualValues(s.t, held, a.status)
			assert.True(s.t, a.back, "it is told that it had lost its place")
			s.release("other", other.token, 0)
			s.release("pP/a", 0, 0)
		},
		"leave after its claim has expired": func(s *atServer, token int64) {
			s.ask("pP/a", ttl, 0)
			s.ask("pP/b", ttl, 0)
			s.release("holder", token, 0)
			s.expire()
			assert.Zero(s.t, s.release("pP/a", 0, 0))
			b := s.ask("pP/b", ttl, 1)
			assert.EqualValues(s.t, granted, b.status, "of the same process, which lives")
			s.release("pP/b", b.token, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAtServer(t)
			s.subscribe("P")
			play(s, s.ask("holder", ttl, 0).token)
			s.wantIdle()
			assert.EqualValues(t, granted, s.ask("last", ttl, 0).status)
		})
	}
}

// The one that was granted counts its TTL from its latest request, for it cannot know which was first.
func TestQueueScripts_aRepeatedRequestOfTheHolderLastsATTL(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.ask("pP/a", time.Second, 0)
	time.Sleep(300 * time.Millisecond)
	require.EqualValues(t, granted, s.ask("pP/a", time.Second, 0).status)
	left := s.rdb.PTTL(t.Context(), s.keys[0]).Val() - Keep
	assert.Greater(t, left, 800*time.Millisecond, "what is left of a hold of 1s whose grant has just been repeated")
}

func TestQueueScripts_theQueueNeverOutlivesItsUsersForLong(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(s *atServer){
		"first waiter": func(*atServer) {},
		"after one that left": func(s *atServer) {
			s.ask("pP/z", ttl, 0)
			s.release("pP/z", 0, 0)
		},
		"after one that was served": func(s *atServer) {
			s.ask("pP/z", ttl, 0)
			s.release(s.owner(), 1, 0)
			s.ask("pP/z", ttl, 1)
		},
		"after its loss": func(s *atServer) {
			s.ask("pP/z", ttl, 0)
			s.rdb.Del(s.t.Context(), s.keys[1])
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAtServer(t)
			s.subscribe("P")
			s.ask("holder", ttl, 0)
			before(s)
			require.EqualValues(t, held, s.ask("pP/a", ttl, 0).status)
			assert.Positive(t, s.rdb.PTTL(t.Context(), s.keys[1]).Val(), "expiry of the queue")
		})
	}
}

// A waiter that is already there has a place that the clock has yet to reach, as if it had been set back.
func TestQueueScripts_aClockThatIsSetBackLetsNobodyInAhead(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	first := s.ask("pP/a", ttl, 0)
	require.NoError(t, s.rdb.ZAdd(t.Context(), s.keys[1], goredis.Z{Score: float64(first.place) + 3600e6, Member: "pP/a"}).Err())
	s.ask("pP/b", ttl, 0)
	s.release("holder", h.token, 0)
	assert.Equal(t, ">pP/a", s.owner())
}

func TestQueueScripts_aForeignMemberOfTheQueueLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"", "foreign", ">", "/", "p", "p/", "s/", "-", ">p/x"} {
		t.Run(foreign, func(t *testing.T) {
			s := newAtServer(t)
			s.subscribe("P")
			h := s.ask("holder", ttl, 0)
			s.ask("pP/a", ttl, 0)
			require.NoError(t, s.rdb.ZAdd(t.Context(), s.keys[1], goredis.Z{Score: 1, Member: foreign}).Err())
			s.release("holder", h.token, 0)
			s.expire()
			s.ask("pP/a", ttl, 1)
			a := s.ask("pP/a", ttl, 1)
			assert.EqualValues(t, granted, a.status)
			s.release("pP/a", a.token, 0)
			s.wantIdle()
		})
	}
}

// Of a process that does not take what is claimed for it one claim expires, not one for each of its waiters.
func TestQueueScripts_aClaimThatLapsesTakesItsProcessOffTheQueue(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("hung")
	s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	for _, w := range []string{"phung/1", "phung/2", "pP/1", "phung/3", "pP/2"} {
		s.ask(w, ttl, 0)
	}
	s.release("holder", h.token, 0)
	require.Equal(t, ">phung/1", s.owner())
	s.expire()
	s.ask("pP/2", ttl, 5)
	assert.Equal(t, ">pP/1", s.owner(), "by order, not to the one that looked")
	assert.Equal(t, []string{"pP/2"}, s.queue())
	a := s.ask("phung/2", ttl, 2)
	assert.True(t, a.back, "it lives, and is in its place again")
	assert.Equal(t, []string{"phung/2", "pP/2"}, s.queue())
}

func TestQueueScripts_passesOverWhoDoesNotListen(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	monitor := s.rdb.PSubscribe(t.Context(), "*")
	defer func() { _ = monitor.Close() }()
	_, err := monitor.Receive(t.Context())
	require.NoError(t, err)
	h := s.ask("holder", ttl, 0)
	for _, w := range []string{"pdead/1", "pdead/2", "sdead/3", "pP/1", "pdead/4"} {
		s.ask(w, ttl, 0)
	}
	s.release("holder", h.token, 0)
	assert.Equal(t, ">pP/1", s.owner())
	a := s.ask("pP/1", ttl, 1)
	s.release("pP/1", a.token, 0)
	s.wantIdle()
}

func TestQueueScripts_outOfMemory(t *testing.T) {
	t.Parallel()
	s := atServerOf(t, testserver.Redis(t, testserver.RedisArgs("--maxmemory-policy", "noeviction")))
	s.subscribe("P")
	h := s.ask("holder", ttl, 0)
	place := s.ask("pP/a", ttl, 0).place
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	fails := func(owner string, place uint64) {
		args := []any{owner, 1000, -int64(place), inTime, ""}
		require.ErrorContains(t, s.rdb.Eval(t.Context(), acquire.Source, s.keys, args...).Err(), "OOM")
	}
	fails("pP/b", 0)
	require.EqualValues(t, 1, s.release("holder", h.token, 0), "Unlock works")
	assert.Equal(t, ">pP/a", s.owner())
	fails("pP/a", place)
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	a := s.ask("pP/a", ttl, place)
	require.EqualValues(t, granted, a.status)
	s.release("pP/a", a.token, 0)
	s.wantIdle()
}

func TestQueueScripts_aLostHashOrQueueLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for i, key := range []string{"hash", "queue"} {
		t.Run(key, func(t *testing.T) {
			s := newAtServer(t)
			s.subscribe("P")
			h := s.ask("holder", ttl, 0)
			first, second := s.ask("pP/a", ttl, 0).place, s.ask("pP/b", ttl, 0).place
			require.NoError(t, s.rdb.Del(t.Context(), s.keys[i]).Err())
			if key == "hash" {
				require.Zero(t, s.release("holder", h.token, 0), "its hold is forgotten")
				require.EqualValues(t, held, s.ask("newcomer", ttl, 0).status, "the queue is not")
			} else {
				require.EqualValues(t, held, s.ask("pP/b", ttl, second).status)
				require.EqualValues(t, held, s.ask("pP/a", ttl, first).status)
				require.EqualValues(t, 1, s.release("holder", h.token, 0))
			}
			assert.Equal(t, ">pP/a", s.owner(), "in order")
			a := s.ask("pP/a", ttl, first)
			require.EqualValues(t, granted, a.status)
			assert.Greater(t, a.token, h.token)
			s.release("pP/a", a.token, 0)
			b := s.ask("pP/b", ttl, second)
			require.EqualValues(t, granted, b.status)
			s.release("pP/b", b.token, 0)
			s.wantIdle()
		})
	}
}

// Somebody has taken the hold away by hand: who waits comes first all the same.
func TestQueueScripts_aLockThatWasFreedByHandIsForWhoWaits(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.subscribe("P")
	before := s.ask("earlier", ttl, 0)
	require.EqualValues(t, 1, s.release("earlier", before.token, 0))
	require.EqualValues(t, granted, s.ask("holder", ttl, 0).status)
	require.EqualValues(t, held, s.ask("pP/a", ttl, 0).status)
	require.NoError(t, s.rdb.HDel(t.Context(), s.keys[0], "owner", "meta").Err())
	assert.EqualValues(t, held, s.ask("newcomer", ttl, 0).status)
	assert.Equal(t, ">pP/a", s.owner())
}
