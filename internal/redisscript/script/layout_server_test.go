package script

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs with two versions of this module share locks, while one replaces the other. So what one leaves at the server the other
// has to understand. These tests have it in plain text. If one of them has to change, two versions side by side no longer exclude one
// another, or lose the queue: that needs a way from the one to the other, and a line in CHANGELOG.md.

func TestLayout_whereThingsAre(t *testing.T) {
	t.Parallel()
	assert.Equal(t, [3]any{"{locker:x}", "{locker:x}:queue", "{locker:x}:readers"}, KeysOf("locker:x"))
	assert.Equal(t, "{a%7Db%25}", Key("a}b%"))
	assert.Equal(t, time.Minute, Keep)
}

func TestLayout_whatATakeAReleaseAndAQueueLeave(t *testing.T) {
	t.Parallel()
	s := newAtServer(t, "P")
	ctx := t.Context()
	fields := func() map[string]string { return s.rdb.HGetAll(ctx, s.keys[0]).Val() }
	a := s.take(Take, "first", ttl, inTime(0), "host 7", 0)
	first := fields()
	assert.Equal(t, "first", first["owner"])
	assert.Equal(t, "host 7", first["meta"])
	token := first["token"]
	assert.Equal(t, fmt.Sprint(a.Token), token)
	left := s.rdb.PTTL(ctx, s.keys[0]).Val() - time.Minute
	assert.LessOrEqual(t, left, ttl, "it expires a minute after the hold")
	assert.Greater(t, left, ttl-5*time.Second)
	assert.Greater(t, s.rdb.PTTL(ctx, MarkKey(t.Name()+":x", false)).Val(), 89*24*time.Hour)

	place := s.ask("pP/a", ttl, 0).Place
	assert.Equal(t, []goredis.Z{{Score: float64(place), Member: "pP/a"}}, s.rdb.ZRangeWithScores(ctx, s.keys[1], 0, -1).Val())
	assert.Positive(t, s.rdb.PTTL(ctx, s.keys[1]).Val(), "it does not outlive its users for long")
	assert.Equal(t, "1", fields()["queue"], "somebody may wait")

	require.EqualValues(t, 1, s.release("first", a.Token, 0))
	claimed := fields()
	assert.Equal(t, ">pP/a", claimed["owner"], "the lock is claimed for the waiter")
	assert.Equal(t, token, claimed["token"])

	next := s.ask("pP/a", ttl, place)
	require.EqualValues(t, 1, s.release("pP/a", next.Token, 0))
	released := fields()
	assert.Equal(t, fmt.Sprint(next.Token), released["token"])
	assert.Equal(t, token, released["before"])
	assert.Equal(t, []string{"before", "lapsed", "token"}, slices.Sorted(maps.Keys(released)), "what is kept for a minute")
}

// The other way round: what another version has left is as good as what this one leaves.
func TestLayout_whatAnotherVersionHasLeftIsHonoured(t *testing.T) {
	t.Parallel()
	s := newAtServer(t)
	told := s.subscribe("P")
	ctx := t.Context()
	const older = 1_700_000_000_000_000 // µs, in 2023
	require.NoError(t, s.rdb.HSet(ctx, s.keys[0], "owner", "first", "meta", "host 7", "token", int64(older), "before", int64(older-5), "lapsed", int64(older-5), "queue", 1).Err())
	require.NoError(t, s.rdb.PExpire(ctx, s.keys[0], time.Minute+ttl).Err())
	require.NoError(t, s.rdb.ZAdd(ctx, s.keys[1], goredis.Z{Score: older + 1, Member: "pP/a"}, goredis.Z{Score: older + 2, Member: "-Q/b"}).Err())

	require.EqualValues(t, Held, s.ask("newcomer", ttl, 0).Status)
	require.EqualValues(t, 1, s.run(Extend, []any{"first", Expiry(ttl)}), "its owner extends it")
	require.EqualValues(t, 1, s.release("first", older, 0), "and releases it")
	assert.Equal(t, ">pP/a", s.owner(), "who came first is first")
	assert.Equal(t, "pP/a", (<-told).Payload)
	require.EqualValues(t, Held, s.ask("newcomer", ttl, 0).Status, "a claim keeps newcomers out")
	a := s.ask("pP/a", ttl, older+1)
	require.EqualValues(t, Granted, a.Status)
	assert.Greater(t, a.Token, int64(older))
	require.EqualValues(t, 1, s.release("first", older, 1), "sent again: it was released, and did not expire")
	require.EqualValues(t, 1, s.release("pP/a", a.Token, 0))
	assert.Equal(t, ">-Q/b", s.owner())
}
