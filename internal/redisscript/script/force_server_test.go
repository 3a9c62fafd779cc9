package script

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

func (s *atServer) force(owner string, token int64) int64 {
	s.t.Helper()
	return s.run(Force, []any{owner, token}).(int64)
}

// What was sent before the hold was ended, and arrives later, or again, finds that it has ended.
func TestForce_whatTheFormerHolderSends(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	token := s.ask("former", ttl, 0).Token
	require.EqualValues(t, 1, s.force("former", token))
	assert.Empty(t, s.owner())
	assert.EqualValues(t, 0, s.release("former", token, 0))
	assert.EqualValues(t, 0, s.release("former", token, 1), "sent again, it does not take the end for its own doing")
	s.keys = s.keys[:1]
	assert.EqualValues(t, 0, s.run(Extend, []any{"former", Expiry(ttl)}))
	assert.Empty(t, s.owner())

	next := s.ask("next", ttl, 0)
	assert.Greater(t, next.Token, token)
	assert.EqualValues(t, 0, s.release("former", token, 1))
	require.EqualValues(t, 1, s.release("next", next.Token, 0))
	assert.EqualValues(t, 1, s.release("next", next.Token, 1), "a release is its own")
}

// The server knows its last two tokens. An earlier hold it may have had, or a failover may have
// forgotten it.
func TestRelease_thatIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	pair := func(owner string) int64 {
		token := s.ask(owner, ttl, 0).Token
		require.EqualValues(t, 1, s.release(owner, token, 0))
		return token
	}
	pair("earlier")
	token := pair("it")
	replica := s.rdb.Dump(t.Context(), s.keys[0]).Val()
	assert.EqualValues(t, 1, s.release("it", token, 1))
	assert.EqualValues(t, 0, s.release("it", token, 0), "it is the first to be sent")
	next := s.ask("next", ttl, 0).Token
	assert.EqualValues(t, 1, s.release("it", token, 1), "the one before")
	require.EqualValues(t, 1, s.release("next", next, 0))
	pair("another")
	assert.EqualValues(t, 0, s.release("it", token, 1), "several have held since")

	forgotten := s.ask("forgotten", ttl, 0).Token
	require.NoError(t, s.rdb.RestoreReplace(t.Context(), s.keys[0], Keep, replica).Err())
	require.Greater(t, s.ask("holder", ttl, 0).Token, forgotten)
	for sent := range 2 {
		assert.EqualValues(t, 0, s.release("forgotten", forgotten, sent))
	}
	require.NoError(t, s.rdb.HSet(t.Context(), s.keys[0], "token", forgotten).Err())
	assert.EqualValues(t, 0, s.release("forgotten", forgotten, 1), "another has it, and the same token: a clock is behind")
	assert.Equal(t, "holder", s.owner())
}

func TestForce_endsWhatItIsShown(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	assert.EqualValues(t, 0, s.force("owner", 7), "there is no lock")
	token := s.ask("owner", ttl, 0).Token
	assert.EqualValues(t, -1, s.force("other", token))
	assert.EqualValues(t, -1, s.force("other", 0))
	assert.EqualValues(t, -1, s.force("owner", token+1))
	assert.Equal(t, "owner", s.owner())
	require.EqualValues(t, 1, s.force("owner", 0), "a token that is not given is not compared")
	assert.EqualValues(t, 0, s.force("owner", 0))
	token = s.ask("owner", ttl, 0).Token
	require.EqualValues(t, 1, s.force("", token), "nor is an owner")

	s.ask("expired", ttl, 0)
	require.NoError(t, s.rdb.PExpire(t.Context(), s.keys[0], Keep).Err())
	assert.EqualValues(t, 0, s.force("expired", 0))
	assert.EqualValues(t, 0, s.run(Extend, []any{"expired", Expiry(ttl)}), "nor can it be revived")
	assert.EqualValues(t, 0, s.run(Raise, []any{"expired", time.Now().Add(time.Hour).UnixMicro(), ""}))
}

// It is as at a release: the lock is the first waiter's, and that is told.
func TestForce_wakesTheFirstWaiter(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	told := s.subscribe("process")
	token := s.ask("former", ttl, 0).Token
	require.EqualValues(t, Held, s.ask("pprocess/first", ttl, 0).Status)
	require.EqualValues(t, Held, s.ask("pprocess/second", ttl, 0).Status)
	require.EqualValues(t, 1, s.force("former", token))
	assert.Equal(t, "pprocess/first", (<-told).Payload)
	assert.EqualValues(t, 0, s.force("", token), "a claim is no hold")
	a := s.ask("other", ttl, 0)
	assert.EqualValues(t, Held, a.Status)
	assert.Equal(t, driver.ErrHeld, a.HeldBy(), "nobody holds it yet")
	next := s.ask("pprocess/first", ttl, 0)
	require.EqualValues(t, Granted, next.Status)
	assert.Greater(t, next.Token, token)
}

// Who holds the lock is told to those who try, and wait, and not to a proposal, of which a node of Redlock gets many.
func TestAcquire_tellsWhoHolds(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	s.take(Take, "holder", ttl, inTime(0), "host 7", 0)
	want := driver.Participant{ID: "holder", Metadata: "host 7"}
	assert.Equal(t, want, s.ask("other", ttl, 0).Holder)
	first := s.ask("pprocess/first", ttl, 0)
	assert.Equal(t, want, first.Holder)
	assert.Equal(t, want, s.ask("pprocess/first", ttl, first.Place).Holder)
	// It has expired, and the lock is claimed for the first of those who wait.
	s.subscribe("process")
	require.NoError(t, s.rdb.PExpire(t.Context(), s.keys[0], Keep).Err())
	a := s.ask("other", ttl, 0)
	require.EqualValues(t, Held, a.Status)
	assert.Equal(t, driver.ErrHeld, a.HeldBy(), "nobody holds it yet")

	require.EqualValues(t, Granted, s.ask("pprocess/first", ttl, first.Place).Status)
	assert.Equal(t, "pprocess/first", s.ask("other", ttl, 0).Holder.ID)
	a = s.propose("other", ttl, time.Now().UnixMicro())
	assert.EqualValues(t, Held, a.Status)
	assert.Equal(t, driver.Participant{}, a.Holder)

	s.forget()
	s.take(Take, "holder", ttl, inTime(0), "host 7", 0)
	s.expire()
	require.EqualValues(t, Granted, s.ask("next", ttl, 0).Status)
	want = driver.Participant{ID: "next"}
	assert.Equal(t, want, s.ask("other", ttl, 0).Holder, "without the metadata of the hold that has expired")
}
