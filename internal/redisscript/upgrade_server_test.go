package redisscript

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

const earlierKeep = 24 * time.Hour

// earlierBuild keeps names for a day, takes tokens of half a day ahead, and knows of no mark.
func earlierBuild(t *testing.T) build {
	t.Helper()
	return thisBuild.
		changed(t, "KEEP = 60000 ", "KEEP = 86400000 ").
		changed(t, "local function mark_of(", "local function unused(").
		changed(t, "redis.pcall('HMGET', mark_of(tag), 'clock', 'floor')", "{}").
		changed(t, "redis.pcall('HSET', mark_of(tag), 'clock', now, 'floor', higher)", "1").
		changed(t, "redis.pcall('PEXPIRE', mark_of(tag), UNUSED)", "")
}

// eitherBuild is a step while both builds use the server. Clocks are right, but for some seconds: the server's may stand and go on, and is not
// set back; clients propose by clocks that are up to 30 s off.
func (l *ledger) eitherBuild() error {
	l.build = thisBuild
	if l.chance(50) {
		l.build = l.earlier
	}
	switch roll := l.rand.IntN(100); {
	case roll < 4:
		l.shift(l.jump())
	case roll < 9:
		l.visit()
	case roll < 50:
		l.end()
	case roll < 75:
		return l.take(l.name(), l.now()+l.rand.Int64N(58e6)-29e6)
	default:
		return l.take(l.name(), 0)
	}
	return nil
}

// upgrade is half of the grants with both builds, and after a take of this one the rest with this one alone and any clock.
func (l *ledger) upgrade(grants int) error {
	if err := l.run(l.eitherBuild, grants/2); err != nil {
		return err
	}
	l.build = thisBuild
	l.shift(2 * time.Second)
	if err := l.take("locker:after", 0); err != nil {
		return err
	}
	return l.run(l.anyClock, grants)
}

func upgrading(t *testing.T, s *testserver.RedisServer, seed uint64) *ledger {
	l := newLedger(t, s, seed)
	l.earlier = earlierBuild(t)
	return l
}

func TestUpgrade_tokensRise(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	n, seeds := ledgerGrants()
	for seed := range seeds {
		l := upgrading(t, s, seed)
		require.NoError(t, l.upgrade(n), "seed %d, after %d grants", seed, l.grants)
	}
}

// The limit: the earlier build knows of no mark, so that a clock that is set back while it is in use makes tokens fall.
func TestUpgrade_notIfTheClockIsSetBackMeanwhile(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	l := upgrading(t, s, 1)
	const name = "locker:1"
	require.NoError(t, l.take(name, 0))
	l.end()
	l.shift(2 * Keep)
	l.visit()
	l.shift(-10 * Keep)
	l.build = l.earlier
	require.ErrorContains(t, l.take(name, 0), "after")
}

// The limit: each takes the other's KEEP for part of a TTL. So they do not exclude each other, and must not hold locks of one server at once.
func TestUpgrade_doesNotExclude(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	l := upgrading(t, s, 1)
	const name = "locker:1"
	require.NoError(t, l.take(name, 0))
	l.build = l.earlier
	require.NoError(t, l.take(name, 0))
	require.Len(t, l.holds, 2, "the earlier build sees a lock that has expired")

	l.shift(time.Minute)
	l.build = thisBuild
	require.NoError(t, l.take(name, 0))
	require.Len(t, l.holds, 2, "this one sees a lock that is held for a day")
}
