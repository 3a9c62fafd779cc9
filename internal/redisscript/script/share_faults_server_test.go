package script

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// without is a connection of a user who may do all but some commands.
func (s *atServer) without(commands ...string) *goredis.Client {
	s.t.Helper()
	args := []any{"ACL", "SETUSER", "few", "reset", "on", "nopass", "~*", "&*", "+@all"}
	for _, c := range commands {
		args = append(args, "-"+c)
	}
	require.NoError(s.t, s.rdb.Do(s.t.Context(), args...).Err())
	return testwait.Closed(goredis.NewClient(&goredis.Options{Addr: s.rdb.Options().Addr, Username: "few", Password: "any"}), nil)(s.t)
}

// wantRefused takes the two ways in which a server says it: for redis.call, and for redis.pcall.
func wantRefused(t *testing.T, err error, right string) {
	t.Helper()
	require.Error(t, err, right)
	require.Regexp(t, "NOPERM|can't run this command", err.Error(), right)
}

func TestShare_whoLacksARightEndsNoOtherAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := atServerOf(t, testserver.Redis(t))
	refused := func(right string) {
		args := []any{"~b", Expiry(ttl), inTime(0), ""}
		wantRefused(t, s.without(right).Eval(t.Context(), TakeShared.Source, s.keys, args...).Err(), right)
	}
	for _, right := range []string{"pexpire", "zadd"} {
		refused(right)
		assert.Zero(t, s.rdb.Exists(t.Context(), s.keys...).Val(), right)
		token := s.share(ttl, "~a")
		refused(right)
		assert.Equal(t, []string{"~a"}, s.readers(), right)
		require.EqualValues(t, Held, s.ask("x", ttl, 0).Status, right)
		require.EqualValues(t, 1, s.extend("~a"), right)
		require.EqualValues(t, 1, s.release("~a", token, 0))
		s.forget()
	}
}

// A user who never waits needs no right to sorted sets, also where others share.
func TestShare_whoHeldTheLockAloneAndHasNoRightToSharesIsToldOfTheLoss(t *testing.T) {
	t.Parallel()
	s := atServerOf(t, testserver.Redis(t))
	token := s.ask("x", ttl, 0).Token
	s.expire()
	s.share(ttl, "~a")
	few := s.without("zscore", "zcard", "zrem", "zrange")
	for sent := range 2 {
		reply, err := few.Eval(t.Context(), Release.Source, s.keys, "x", token, sent).Int()
		require.NoError(t, err)
		assert.Zero(t, reply)
	}
	assert.Equal(t, []string{"~a"}, s.readers())
}

// What cannot be helped: those that are there have one token. See docs/backends/redis.md.
func TestShare_thatJoinsOthersHasTheirTokenThoughAWriterWasForgotten(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	ctx := t.Context()
	token := s.share(ttl, "~a")
	keys := []string{s.keys[0], s.readersKey()}
	behind := []string{s.rdb.Dump(ctx, keys[0]).Val(), s.rdb.Dump(ctx, keys[1]).Val()}
	require.EqualValues(t, 1, s.release("~a", token, 0))
	writer := s.ask("x", ttl, 0).Token
	for i, key := range keys {
		require.NoError(t, s.rdb.RestoreReplace(ctx, key, Keep+ttl, behind[i]).Err())
	}
	assert.Equal(t, token, s.share(ttl, "~b"))
	require.EqualValues(t, 0, s.extend("x"), "the writer is told")
	s.expireShare("~a")
	require.EqualValues(t, 1, s.release("~b", token, 0))
	assert.Greater(t, s.share(ttl, "~c"), writer, "when all have gone")
}

func TestShare_whoGivesUpWithAClaimThatHasExpiredLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	s.share(ttl, "~a")
	s.ask("pP/w", ttl, 0)
	s.join("pP/~b", ttl, 0) // and the reply is lost
	require.EqualValues(t, 1, s.release("pP/w", 0, 0))
	s.expireShare(">pP/~b")
	s.ask("pP/v", ttl, 0)
	require.EqualValues(t, Held, s.join("pP/~b", ttl, 0).Status)
	require.Equal(t, []string{"pP/v", "pP/~b"}, s.queue())
	require.EqualValues(t, 1, s.release("pP/~b", 0, 0))
	assert.Equal(t, []string{"pP/v"}, s.queue())
}

// It has given up, and that did not arrive; or its process is stopped, or dead and was never subscribed.
func TestShare_aWriterThatNeverLooksIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, writer := range []string{"pP/w", "-Q/w"} {
		s := newAtServer(t, "P")
		s.rdb.Del(t.Context(), s.keys[0], s.keys[1], s.readersKey())
		token := s.share(ttl, "~a")
		w := s.ask(writer, ttl, 0)
		const age = 2e6 // µs
		require.NoError(t, s.rdb.ZIncrBy(t.Context(), s.keys[1], -age, writer).Err())
		reader := s.join("pP/~b", ttl, 0)
		require.EqualValues(t, Held, reader.Status)
		looks := func() int64 { return s.join("pP/~b", ttl, reader.Place).Status }
		unseen := func() {
			past := s.serverTime() - 6e6
			require.NoError(t, s.rdb.HSet(t.Context(), s.keys[0], "seen", past).Err())
		}
		require.EqualValues(t, Held, looks())
		unseen()
		require.EqualValues(t, Held, s.ask(writer, ttl, w.Place-age).Status)
		for range 2 {
			require.EqualValues(t, Held, looks(), "it has looked just now")
		}
		unseen()
		require.EqualValues(t, Granted, looks())

		require.EqualValues(t, Held, s.ask(writer, ttl, w.Place-age).Status, "it was alive")
		require.EqualValues(t, Held, s.join("pP/~c", ttl, 0).Status, "and has its place again")
		s.release("~a", token, 0)
		s.release("pP/~b", token, 0)
		require.EqualValues(t, Granted, s.ask(writer, ttl, w.Place-age).Status)
	}
}

// It stood still when the lock was claimed for it, and has come back to its place since. When the
// next shares begin, nothing is known of when it looked last, because nobody notes that while the
// lock is held alone.
func TestShare_aWriterThatStoodStillOnceIsNotOvertakenLater(t *testing.T) {
	t.Parallel()
	for how, begin := range map[string]func(s *atServer, x Answer){
		"a downgrade": func(s *atServer, _ Answer) { require.EqualValues(s.t, 1, s.run(Downgrade, []any{"pR/x"})) },
		"a hand-over": func(s *atServer, x Answer) {
			s.rdb.ZAdd(s.t.Context(), s.keys[1], goredis.Z{Score: 1, Member: "pP/~first"})
			require.EqualValues(s.t, 1, s.release("pR/x", x.Token, 0))
		},
		"an expiry": func(s *atServer, _ Answer) {
			s.expire()
			s.rdb.ZAdd(s.t.Context(), s.keys[1], goredis.Z{Score: 1, Member: "pP/~first"})
			require.EqualValues(s.t, Granted, s.join("pP/~first", ttl, 1).Status)
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newAtServer(t, "P", "Q", "R")
			token := s.share(ttl, "~a")
			w, x := s.ask("pQ/w", ttl, 0).Place-2e6, s.ask("pR/x", ttl, 0).Place
			require.NoError(t, s.rdb.ZIncrBy(t.Context(), s.keys[1], -2e6, "pQ/w").Err())
			c := s.join("pP/~c", ttl, 0)
			require.EqualValues(t, 1, s.release("~a", token, 0))
			require.Equal(t, ">pQ/w", s.owner())
			s.expire()
			writes := s.ask("pR/x", ttl, x)
			require.EqualValues(t, Granted, writes.Status)
			require.True(t, s.ask("pQ/w", ttl, w).Back)
			past := s.serverTime() - 6e6
			require.NoError(t, s.rdb.HSet(t.Context(), s.keys[0], "seen", past).Err())
			require.False(t, s.ask("pQ/w", ttl, w).Back, "it looks")
			begin(s, writes)
			assert.NotContains(t, s.readers(), ">pP/~c")
			assert.EqualValues(t, Held, s.join("pP/~c", ttl, c.Place).Status)
			assert.Equal(t, []string{"pQ/w", "pP/~c"}, s.queue())
		})
	}
}

func TestShare_aProcessThatDoesNotComeForItsClaimMakesRoom(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P", "Q")
	x := s.ask("x", ttl, 0)
	s.join("pP/~a", ttl, 0)
	w := s.ask("pQ/w", ttl, 0)
	s.join("pP/~b", ttl, 0)
	last := s.join("pQ/~c", ttl, 0)
	require.EqualValues(t, 1, s.release("x", x.Token, 0))
	require.Equal(t, []string{">pP/~a"}, s.readers())
	s.expireShare(">pP/~a")
	s.expire()
	got := s.ask("pQ/w", ttl, w.Place)
	require.EqualValues(t, Granted, got.Status)
	assert.Equal(t, []string{"pQ/~c"}, s.queue())
	require.EqualValues(t, 1, s.release("pQ/w", got.Token, 0))
	assert.Equal(t, []string{">pQ/~c"}, s.readers(), "nobody waits for the others")
	require.EqualValues(t, Granted, s.join("pQ/~c", ttl, last.Place).Status)
}
