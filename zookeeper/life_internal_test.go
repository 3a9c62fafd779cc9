package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at is n milliseconds after some time.
func at(n int) time.Time { return time.Unix(1000, 0).Add(time.Duration(n) * time.Millisecond) }

func newLife() *life { return &life{ttl: time.Second, tick: 100 * time.Millisecond} }

func TestLife_aContactCountsWhenItIsProven(t *testing.T) {
	l := newLife()
	assert.True(t, l.until().IsZero(), "nothing is known")
	l.contact(at(0), at(10), l.tick)
	l.prove(l.ripe(at(109)))
	assert.True(t, l.until().IsZero(), "one tick after the answer, not after the question, and not less")
	l.prove(l.ripe(at(110)))
	assert.Equal(t, at(1000), l.until(), "counted from the question")
	l.contact(at(200), at(210), l.tick)
	assert.Equal(t, at(1000), l.until(), "a contact alone moves nothing")
	l.prove(l.ripe(at(250)))
	assert.Equal(t, at(1000), l.until())
	l.prove(l.ripe(at(310)))
	assert.Equal(t, at(1200), l.until())
	l.prove(l.ripe(at(150)))
	l.contact(at(100), at(110), l.tick)
	l.prove(l.ripe(at(2000)))
	assert.Equal(t, at(1200), l.until(), "never backwards")
}

func TestLife_beginsWithTheSession(t *testing.T) {
	l := newLife()
	l.prove(at(5))
	assert.Equal(t, at(1005), l.until())
	assert.Equal(t, at(5), l.youngest())
	assert.Equal(t, at(5), l.born)
}

// A session that is taken up again is in touch with the leader, but that may have been deposed.
func TestLife_ofASessionTakenUpAgainNeedsProofAndNoTick(t *testing.T) {
	l := newLife()
	l.prove(at(0))
	l.contact(at(500), at(520), 0)
	assert.Equal(t, at(1000), l.until())
	l.prove(l.ripe(at(519)))
	assert.Equal(t, at(1000), l.until(), "sent before it was taken up")
	l.prove(l.ripe(at(520)))
	assert.Equal(t, at(1500), l.until())
}

func TestLife_ripens(t *testing.T) {
	l := newLife()
	assert.True(t, l.ripens(at(0)).IsZero())
	l.contact(at(10), at(20), l.tick)
	l.contact(at(50), at(60), l.tick)
	assert.Equal(t, at(120), l.ripens(at(0)))
	assert.Equal(t, at(160), l.ripens(at(10)), "of those sent later")
	assert.Equal(t, at(10), l.ripe(at(130)))
	assert.Equal(t, at(50), l.ripe(at(160)))
	assert.True(t, l.ripe(at(119)).IsZero())
}

// However long the TTL is: a contact is remembered, or the next would be due at once, and they are
// few.
func TestLife_ofALongTTL(t *testing.T) {
	l := &life{ttl: 24 * time.Hour, tick: longestTick}
	for i := range 1000 {
		now := at(4000 * i)
		l.contact(now, now, l.tick)
		require.Equal(t, now, l.youngest())
	}
	assert.Less(t, len(l.young), 10)
}
