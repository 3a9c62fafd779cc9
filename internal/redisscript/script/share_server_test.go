package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// join is the script for a share.
func (s *atServer) join(owner string, ttl time.Duration, place uint64) Answer {
	s.t.Helper()
	return s.take(TakeShared, owner, ttl, inTime(int64(place)), "", 0)
}

// share has owners get shares of a TTL, and returns their token.
func (s *atServer) share(ttl time.Duration, owners ...string) (token int64) {
	s.t.Helper()
	for _, owner := range owners {
		a := s.join(owner, ttl, 0)
		require.EqualValues(s.t, Granted, a.Status, owner)
		token = a.Token
	}
	return token
}

func (s *atServer) extend(owner string) any {
	s.t.Helper()
	return s.run(ExtendShared, []any{owner, Expiry(ttl)})
}

func (s *atServer) readersKey() string { return s.keys[2] }

func (s *atServer) readers() []string {
	return slices.Sorted(slices.Values(s.rdb.ZRange(s.t.Context(), s.readersKey(), 0, -1).Val()))
}

// expireShare has one share be over.
func (s *atServer) expireShare(owner string) {
	s.t.Helper()
	past := s.serverTime()/1000 - 1
	require.NoError(s.t, s.rdb.ZAddXX(s.t.Context(), s.readersKey(), goredis.Z{Score: float64(past), Member: owner}).Err())
}

func (s *atServer) wantLeft(want time.Duration) {
	s.t.Helper()
	assert.InDelta(s.t, want, s.left(), float64(3*time.Second))
}

func TestShare_theLockLastsAsLongAsTheLongestShare(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.share(20*time.Second, "~a")
	assert.Equal(t, token, s.share(40*time.Second, "~b"))
	assert.Equal(t, token, s.share(10*time.Second, "~c"))
	s.wantLeft(40 * time.Second)
	assert.Greater(t, s.rdb.PTTL(t.Context(), s.readersKey()).Val(), Keep, "whoever comes after it has expired finds who had shares")
	require.EqualValues(t, Held, s.ask("x", ttl, 0).Status)
	require.EqualValues(t, 1, s.release("~b", token, 0))
	s.wantLeft(20 * time.Second)
	require.EqualValues(t, 1, s.release("~c", token, 0))
	s.wantLeft(20 * time.Second)
	require.EqualValues(t, 1, s.release("~a", token, 0))
	s.wantIdle()
	assert.Empty(t, s.readers())
	assert.Equal(t, []string{"before", "lapsed", "reader", "shared", "token"},
		slices.Sorted(maps.Keys(s.rdb.HGetAll(t.Context(), s.keys[0]).Val())), "what is kept for a minute")
	assert.Greater(t, s.share(ttl, "~d"), token)
	require.EqualValues(t, 1, s.release("~d", token, 0))
	assert.Greater(t, s.ask("x", ttl, 0).Token, token)
	require.EqualValues(t, Held, s.join("~e", ttl, 0).Status)
}

func TestShare_anExtensionMovesItsEndTheLocksAndTheSets(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.share(ttl/3, "~a")
	require.EqualValues(t, 1, s.extend("~a"))
	s.wantLeft(ttl)
	ends := s.rdb.ZScore(t.Context(), s.readersKey(), "~a").Val()
	assert.InDelta(t, time.Now().Add(ttl).UnixMilli(), ends, 3000)
	assert.Greater(t, s.rdb.PTTL(t.Context(), s.readersKey()).Val(), Keep+ttl/2)
}

func TestShare_thatHasExpiredIsNotKeptByOthers(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.share(ttl, "~a", "~b")
	s.expireShare("~a")
	require.EqualValues(t, 1, s.extend("~b"))
	require.EqualValues(t, 0, s.extend("~a"), "it cannot be revived")
	require.EqualValues(t, 0, s.release("~a", token, 0))
	s.share(ttl, "~c")
	assert.Equal(t, []string{"~b", "~c"}, s.readers(), "it is forgotten")
	require.EqualValues(t, 0, s.release("~a", token, 1), "it was not released")
	require.EqualValues(t, 1, s.release("~b", token, 0))
	s.expireShare("~c")
	s.expire()
	require.EqualValues(t, 0, s.release("~c", token, 0))
	require.EqualValues(t, Granted, s.ask("x", ttl, 0).Status)

	s.subscribe("P")
	for _, waiter := range []string{"pP/~d", "pP/~e"} {
		require.EqualValues(t, Held, s.join(waiter, ttl, 0).Status)
	}
	s.expire()
	require.EqualValues(t, Granted, s.join("pP/~d", ttl, 0).Status)
	assert.Equal(t, []string{">pP/~e", "pP/~d"}, s.readers(), "who stands behind the one that looked is let in with it")
}

func TestShare_whatArrivesLateGetsWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	late := func(owner string, ago time.Duration) Answer { a, _ := s.askLate(TakeShared, owner, ago); return a }
	require.EqualValues(t, -1, late("~a", 5*time.Second).Status)
	assert.Empty(t, s.readers())
	require.EqualValues(t, Granted, late("~a", 3*time.Second).Status)
	assert.LessOrEqual(t, s.left(), 7*time.Second+time.Millisecond)
	require.EqualValues(t, -1, late("~b", 5*time.Second).Status, "too late for a share beside another")
	require.EqualValues(t, Granted, late("~a", 5*time.Second).Status, "it was sent twice")
}

func TestShare_aReleaseThatIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.share(ttl, "~a", "~b", "~c")
	require.EqualValues(t, 1, s.release("~a", token, 0))
	require.EqualValues(t, 1, s.release("~a", token, 1), "others have shares")
	assert.Equal(t, []string{"~b", "~c"}, s.readers(), "it has ended no other")
	require.EqualValues(t, 1, s.release("~b", token, 0))
	require.EqualValues(t, 1, s.release("~c", token, 0))
	require.EqualValues(t, 1, s.release("~b", token, 1), "nobody has had the lock alone since")
	require.EqualValues(t, Granted, s.ask("x", ttl, 0).Status)
	require.EqualValues(t, 1, s.release("~c", token, 1), "it was the last")
	require.EqualValues(t, 0, s.release("~b", token, 1), "it may have been forgotten by a failover")
	require.EqualValues(t, 0, s.release("~never", token, 1))
	assert.Equal(t, "x", s.owner())
}

// Of shares under one token some expire, or are ended by force. Who was released before, and asks
// again, is told that it was.
// Its server's clock has jumped, and the reply to its first take was lost.
func TestShare_aReleaseThatIsSentAgain_ofAnOwnerThatHadAShareWhichExpired(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	first := s.share(ttl, "~a")
	s.expire()
	token := s.share(ttl, "~a")
	require.Greater(t, token, first)
	require.EqualValues(t, 1, s.release("~a", token, 0))
	assert.EqualValues(t, 1, s.release("~a", token, 1))
	assert.EqualValues(t, 0, s.release("~a", first, 1))
}

// The hold that expired is between two tokens of shares some of which expired.
func TestRelease_thatIsSentAgain_ofAHoldThatExpiredBetweenShares(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	oneExpires := func() {
		token := s.share(ttl, "~a", "~b")
		s.expireShare("~a")
		require.EqualValues(t, 1, s.release("~b", token, 0))
	}
	oneExpires()
	token := s.ask("x", ttl, 0).Token
	s.expire()
	oneExpires()
	assert.EqualValues(t, 0, s.release("x", token, 1))
}

func TestShare_aReleaseThatIsSentAgainAfterAnotherShareHasEnded(t *testing.T) {
	t.Parallel()
	expires := func(s *atServer) { s.expireShare("~b") }
	expiresLast := func(s *atServer) { expires(s); s.expire() }
	for how, end := range map[string]func(s *atServer, token int64){
		"expired, and another joins":              func(s *atServer, _ int64) { s.share(ttl, "~c"); expires(s); s.share(ttl, "~d") },
		"expired, and another releases":           func(s *atServer, token int64) { s.share(ttl, "~c"); expires(s); s.release("~c", token, 0) },
		"expired as the last, and a reader comes": func(s *atServer, _ int64) { expiresLast(s); s.share(ttl, "~c") },
		"expired as the last, and a reader comes, who expires": func(s *atServer, _ int64) {
			expiresLast(s)
			s.share(ttl, "~c")
			s.expireShare("~c")
			s.share(ttl, "~d")
		},
		"ended by force": func(s *atServer, token int64) { require.EqualValues(s.t, 1, s.force("~b", token)) },
		"expired as one of more than are noted": func(s *atServer, token int64) {
			for i := range 20 {
				many := fmt.Sprint("~", strings.Repeat("x", 50), i)
				s.share(ttl, many)
				require.EqualValues(s.t, 1, s.force(many, token))
			}
			expires(s)
			s.share(ttl, "~c")
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newAtServer(t)
			token := s.share(ttl, "~a", "~b")
			require.EqualValues(t, 1, s.release("~a", token, 0))
			end(s, token)
			switch how {
			case "expired as the last, and a reader comes, who expires": // another token's are known
			case "expired as one of more than are noted":
				assert.EqualValues(t, 0, s.release("~a", token, 1), "in doubt")
			default:
				assert.EqualValues(t, 1, s.release("~a", token, 1))
			}
			assert.EqualValues(t, 0, s.release("~b", token, 1), "it was not released")
		})
	}
}

func TestShare_readersBehindAWriterWaitAndAreClaimedForTogether(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	told := s.subscribe("P")
	token := s.share(ttl, "~a")
	writer := s.ask("pP/w", ttl, 0)
	require.EqualValues(t, Held, writer.Status)
	assert.Empty(t, writer.Holder.ID, "no one holds it")
	require.EqualValues(t, Held, s.join("~visitor", ttl, 0).Status)
	for _, owner := range []string{"pP/~b", "pP/~c", "-Q/~d"} {
		require.EqualValues(t, Held, s.join(owner, ttl, 0).Status)
	}
	next := s.ask("pP/x", ttl, 0)
	require.EqualValues(t, Held, s.join("pP/~e", ttl, 0).Status)

	require.EqualValues(t, 1, s.release("~a", token, 0))
	assert.Equal(t, "pP/w", (<-told).Payload)
	got := s.ask("pP/w", ttl, writer.Place)
	require.EqualValues(t, Granted, got.Status)
	require.EqualValues(t, 1, s.release("pP/w", got.Token, 0))
	assert.Equal(t, []string{"pP/~b", "pP/~c"}, []string{(<-told).Payload, (<-told).Payload})
	assert.Equal(t, []string{">-Q/~d", ">pP/~b", ">pP/~c"}, s.readers())
	s.wantLeft(2 * time.Second)
	assert.Positive(t, s.rdb.PTTL(t.Context(), s.readersKey()).Val(), "claims for which nobody comes do not stay")
	require.EqualValues(t, Held, s.join("~visitor", ttl, 0).Status, "a writer waits")

	c := s.join("pP/~c", ttl, 0)
	require.EqualValues(t, Granted, c.Status)
	assert.Greater(t, c.Token, got.Token)
	assert.Equal(t, c.Token, s.join("-Q/~d", ttl, 0).Token)
	s.expireShare(">pP/~b") // its process hangs
	require.EqualValues(t, 1, s.release("pP/~c", c.Token, 0))
	require.EqualValues(t, 1, s.release("-Q/~d", c.Token, 0))
	assert.Equal(t, ">pP/x", s.owner(), "it held up nobody for longer than its claim")
	require.EqualValues(t, Granted, s.ask("pP/x", ttl, next.Place).Status)
}

func TestShare_aWriterThatLeavesOrDiesLetsInThoseBehindIt(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	token := s.share(ttl, "~a")
	s.ask("pW/w", ttl, 0)
	b := s.join("pP/~b", ttl, 0)
	require.EqualValues(t, Held, b.Status, "it may be about to subscribe")
	require.NoError(t, s.rdb.ZIncrBy(t.Context(), s.keys[1], -2e6, "pW/w").Err())
	assert.Equal(t, token, s.join("pP/~b", ttl, b.Place).Token, "it is dead")

	s.subscribe("W")
	s.ask("pW/w", ttl, 0)
	c := s.join("pP/~c", ttl, 0)
	require.EqualValues(t, Held, c.Status)
	require.EqualValues(t, 1, s.release("pW/w", 0, 0))
	assert.Contains(t, s.readers(), ">pP/~c", "at once")
	assert.Equal(t, token, s.join("pP/~c", ttl, c.Place).Token)
}

func TestDowngrade_letsInThoseAtTheHeadOfTheQueue(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	a := s.ask("x", ttl, 0)
	s.join("pP/~b", ttl, 0)
	s.ask("pP/w", ttl, 0)
	s.join("pP/~c", ttl, 0)
	down := func(owner string) any { return s.run(Downgrade, []any{owner}) }
	require.EqualValues(t, 0, down("y"))
	require.EqualValues(t, 1, down("x"))
	assert.Equal(t, []string{">pP/~b", "x"}, s.readers())
	assert.Greater(t, s.rdb.PTTL(t.Context(), s.readersKey()).Val(), Keep, "as long as the lock")
	require.EqualValues(t, 1, down("x"), "sent again")
	s.wantLeft(ttl)
	require.EqualValues(t, 1, s.extend("x"))
	assert.Equal(t, a.Token, s.join("pP/~b", ttl, 0).Token)
	for sentBefore := range 2 {
		require.EqualValues(t, 1, s.run(Release, []any{"x", a.Token, sentBefore}))
	}
	require.EqualValues(t, 0, down("x"), "it arrives late")
	require.EqualValues(t, 0, s.extend("x"))
	require.EqualValues(t, 1, s.release("pP/~b", a.Token, 0))
	assert.Equal(t, ">pP/w", s.owner())
}

// While a slot moves. Nothing is known of those that are not there.
func TestShare_thoseThatAreNotWhereTheLockIsAreNotTakenForGone(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.share(ttl, "~a", "~b")
	require.NoError(t, s.rdb.Del(t.Context(), s.readersKey()).Err())
	for script, args := range map[*Script][]any{
		TakeShared: {"~c", Expiry(ttl), inTime(0), ""}, ExtendShared: {"~a", Expiry(ttl)}, Release: {"~a", token, 1},
	} {
		require.ErrorContains(t, s.rdb.Eval(t.Context(), script.Source, s.keys, args...).Err(), "TRYAGAIN locker")
	}
	require.EqualValues(t, Held, s.ask("x", ttl, 0).Status, "others may hold")
	s.expire()
	token = s.share(ttl, "~c")
	require.EqualValues(t, 1, s.release("~c", token, 0))

	s.ask("x", ttl, 0)
	require.EqualValues(t, 1, s.run(Downgrade, []any{"x"}))
	require.NoError(t, s.rdb.Del(t.Context(), s.readersKey()).Err())
	require.ErrorContains(t, s.rdb.Eval(t.Context(), Downgrade.Source, s.keys, "x").Err(), "TRYAGAIN locker")
}

func TestForce_ofShares(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.share(ttl, "~a", "~b", "~c")
	require.EqualValues(t, -1, s.force("~d", token))
	require.EqualValues(t, -1, s.force("", token-1))
	require.EqualValues(t, 1, s.force("~a", token), "one of them")
	assert.Equal(t, []string{"~b", "~c"}, s.readers())
	require.EqualValues(t, 0, s.release("~a", token, 1))
	require.EqualValues(t, 0, s.extend("~a"))
	require.EqualValues(t, 1, s.force("", token), "all")
	s.wantIdle()
	assert.Empty(t, s.readers())
	require.EqualValues(t, 0, s.release("~b", token, 1))
	require.EqualValues(t, 0, s.extend("~b"))
	require.EqualValues(t, 0, s.force("", token))
}

func TestShare_withoutMemory(t *testing.T) {
	t.Parallel()
	s := atServerOf(t, testserver.Redis(t, testserver.RedisConfig("maxmemory-policy noeviction")))
	token := s.share(ttl, "~a", "~b")
	s.expireShare("~b")
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, s.rdb.Eval(t.Context(), TakeShared.Source, s.keys, "~c", Expiry(ttl), inTime(0), "").Err(), "OOM")
	assert.Equal(t, []string{"~a", "~b"}, s.readers(), "nothing has happened")
	require.EqualValues(t, 1, s.extend("~a"))
	require.EqualValues(t, 1, s.release("~a", token, 0))
	s.wantIdle()
	require.ErrorContains(t, s.rdb.Eval(t.Context(), TakeShared.Source, s.keys, "~c", Expiry(ttl), inTime(0), "").Err(), "OOM")
	s.wantIdle()
	assert.Empty(t, s.readers())
}

func TestShare_whenTheClockJumps(t *testing.T) {
	server := testserver.Redis(t, testserver.RedisClock())
	s := atServerOf(t, server)
	token := s.share(ttl, "~a")
	server.ShiftClock(time.Minute)
	require.EqualValues(t, 0, s.extend("~a"))
	require.EqualValues(t, 0, s.release("~a", token, 0))
	a := s.ask("x", ttl, 0)
	require.EqualValues(t, Granted, a.Status)
	server.ShiftClock(-time.Hour)
	require.EqualValues(t, 0, s.extend("~a"), "its set may be there again")
	require.EqualValues(t, 1, s.release("x", a.Token, 0))
	later := s.share(ttl, "~b")
	assert.Greater(t, later, a.Token)
	assert.Equal(t, []string{"~b"}, s.readers())
	s.wantLeft(ttl)
	require.EqualValues(t, 1, s.release("~b", later, 0))
	s.wantIdle()
}
