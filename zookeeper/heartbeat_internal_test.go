package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is n milliseconds after some time.
func at(n int) time.Time { return time.Unix(1000, 0).Add(time.Duration(n) * time.Millisecond) }

func newHeartbeats() *heartbeats {
	return &heartbeats{ttl: time.Second, tick: 100 * time.Millisecond}
}

func TestHeartbeats_countWhenTheyAreConfirmed(t *testing.T) {
	h := newHeartbeats()
	write := func(sent int) { h.confirm(h.confirmedBy(at(sent))) }
	assert.True(t, h.expires().IsZero(), "nothing is known")
	h.record(at(0), at(10), h.tick)
	write(109)
	assert.True(t, h.expires().IsZero(), "one tick after the answer, not after the question, and not less")
	write(110)
	assert.Equal(t, at(1000), h.expires(), "counted from the question")
	h.record(at(200), at(210), h.tick)
	assert.Equal(t, at(1000), h.expires(), "a heartbeat alone moves nothing")
	write(250)
	assert.Equal(t, at(1000), h.expires())
	write(310)
	assert.Equal(t, at(1200), h.expires())
	write(150)
	h.record(at(100), at(110), h.tick)
	write(2000)
	assert.Equal(t, at(1200), h.expires(), "never backwards")

	h = newHeartbeats()
	h.confirm(at(5))
	assert.Equal(t, []time.Time{at(5), at(5), at(1005)}, []time.Time{h.first, h.latest(), h.expires()}, "the session's creation")
	h.record(at(500), at(520), 0)
	write(519)
	assert.Equal(t, at(1005), h.expires(), "sent before the session was resumed")
	write(520)
	assert.Equal(t, at(1500), h.expires(), "a resumed session needs confirmation, and no tick")
}

func TestHeartbeats_confirmable(t *testing.T) {
	h := newHeartbeats()
	assert.True(t, h.confirmable(at(0)).IsZero())
	h.record(at(10), at(20), h.tick)
	h.record(at(50), at(60), h.tick)
	assert.Equal(t, at(120), h.confirmable(at(0)))
	assert.Equal(t, at(160), h.confirmable(at(10)), "of those sent later")
	assert.Equal(t, at(10), h.confirmedBy(at(130)))
	assert.Equal(t, at(50), h.confirmedBy(at(160)))
	assert.True(t, h.confirmedBy(at(119)).IsZero())
}

// However long the TTL is: a heartbeat is remembered, or the next would be due at once, and they are
// few.
func TestHeartbeats_ofALongTTL(t *testing.T) {
	h := &heartbeats{ttl: 24 * time.Hour, tick: longestTick}
	for i := range 1000 {
		now := at(4000 * i)
		h.record(now, now, h.tick)
		require.Equal(t, now, h.latest())
	}
	assert.Less(t, len(h.pending), 10)
}
