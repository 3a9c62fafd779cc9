package zookeeper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/testwait"
)

// at is n milliseconds after some time.
func at(n int) time.Time { return time.Unix(1000, 0).Add(time.Duration(n) * time.Millisecond) }

func newHeartbeats() *heartbeats {
	return &heartbeats{ttl: time.Second, delay: 100 * time.Millisecond}
}

func TestHeartbeats_countWhenTheyAreConfirmed(t *testing.T) {
	h := newHeartbeats()
	write := func(sent int) { h.confirm(h.latestConfirmable(at(sent))) }
	assert.True(t, h.expires().IsZero(), "nothing is known")
	h.record(at(0), at(10), h.delay)
	write(109)
	assert.True(t, h.expires().IsZero(), "one tick after the answer, not after the question, and not less")
	write(110)
	assert.Equal(t, at(1000), h.expires(), "counted from the question")
	h.record(at(200), at(210), h.delay)
	assert.Equal(t, at(1000), h.expires(), "a heartbeat alone moves nothing")
	write(250)
	assert.Equal(t, at(1000), h.expires())
	write(310)
	assert.Equal(t, at(1200), h.expires())
	write(150)
	h.record(at(100), at(110), h.delay)
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
	h.record(at(10), at(20), h.delay)
	h.record(at(50), at(60), h.delay)
	assert.Equal(t, at(120), h.confirmable(at(0)))
	assert.Equal(t, at(160), h.confirmable(at(10)), "of those sent later")
	assert.Equal(t, at(10), h.latestConfirmable(at(130)))
	assert.Equal(t, at(50), h.latestConfirmable(at(160)))
	assert.True(t, h.latestConfirmable(at(119)).IsZero())
}

// However long the TTL is: a heartbeat is remembered, or the next would be due at once, and they are
// few.
func TestHeartbeats_ofALongTTL(t *testing.T) {
	h := &heartbeats{ttl: 24 * time.Hour, delay: longestDelay}
	for i := range 1000 {
		now := at(4000 * i)
		h.record(now, now, h.delay)
		require.Equal(t, now, h.latest())
	}
	assert.Less(t, len(h.pending), 10)
}

// A session is taken up by a server whose configuration grants less: it ends sooner than its holds
// were told.
func TestSession_thatIsGrantedLessWhenItIsTakenUpAgain(t *testing.T) {
	d := newDriver(nil)
	defer func() { _ = d.Close() }()
	s := newSession(d, 10*time.Second, false)
	s.conn, s.id = new(zk.Conn), 7
	s.heartbeats.confirm(clock.Now().Add(-time.Second))
	before := s.heartbeats.latest()
	s.resumed(&link{began: clock.Now()}, 8, 10*time.Second)
	assert.Equal(t, before, s.heartbeats.latest(), "not of this session")
	s.resumed(&link{began: clock.Now()}, 7, 10*time.Second)
	assert.True(t, s.heartbeats.latest().After(before))
	assert.Positive(t, s.Left())
	s.resumed(&link{began: clock.Now()}, 7, 9*time.Second)
	assert.True(t, s.Ended())
	assert.Zero(t, s.Left())
}

// ensemble is what a leader knows of one session, whose client talks to a follower. The leader asks
// the follower twice a tick which sessions were in touch (Leader.lead), and has them end a time-out
// after it has heard, at the end of a tick of its own (ExpiryQueue).
type ensemble struct {
	random    *rand.Rand
	tick, ttl time.Duration

	phase   time.Duration // of the leader's ticks
	asked   time.Duration // when the follower is asked next
	touched bool          // since it was asked last
	ends    time.Duration
}

func (e *ensemble) heard(at time.Duration) {
	ends := at + e.ttl
	e.ends = ends + e.tick - (ends-e.phase)%e.tick
}

// upTo lets the leader ask until at, and a little late each time.
func (e *ensemble) upTo(at time.Duration) {
	for ; e.asked <= at; e.asked += e.tick/2 + e.some(e.tick/100) {
		if e.touched {
			e.heard(e.asked)
		}
		e.touched = false
	}
}

func (e *ensemble) some(d time.Duration) time.Duration {
	return time.Duration(e.random.Int64N(int64(d) + 1))
}

// overstays has a follower cut off from the leader right after each write that a quorum has agreed
// on, which is when a client knows most and the leader least, and returns how often a hold lasts
// for longer than its session then, and by how much at most.
func overstays(random *rand.Rand, tick time.Duration, cuts int) (times int, longest time.Duration) {
	const perSession = 50
	start := clock.Now()
	for range cuts / perSession {
		// Most are hardly longer than two ticks: servers grant no less, and that is the worst case.
		ttl := 2*tick + time.Duration(random.Int64N(1+random.Int64N(int64(18*tick)))).Truncate(time.Millisecond)
		e := &ensemble{random: random, tick: tick, ttl: ttl}
		e.phase, e.asked = e.some(tick), e.some(tick/2)
		e.heard(0)
		l := heartbeats{ttl: ttl, delay: new(backend).delayFor(ttl)}
		l.confirm(start)
		for now, seen := time.Duration(0), 0; seen < perSession; {
			now += e.some(pace(ttl) / heartbeatRate)
			sent, received := now, now+e.some(5*time.Millisecond)
			e.upTo(received)
			now = received + e.some(5*time.Millisecond)
			e.touched = true
			if random.IntN(3) == 0 {
				seen++
				l.confirm(l.latestConfirmable(start.Add(sent)))
				deadline := l.expires().Sub(start) - ttl/100 - 2*time.Millisecond // as the core has it
				if over := deadline - e.ends; over > 0 {
					times, longest = times+1, max(longest, over)
				}
			}
			l.record(start.Add(sent), start.Add(now), l.delay)
		}
	}
	return times, longest
}

// The servers' tick is not known, and no hold may outlast its session whatever that is.
func TestTick_thatIsNotGivenIsLongEnoughForAnyServers(t *testing.T) {
	t.Parallel()
	cuts := 20_000
	if testwait.Thorough() {
		cuts = 100_000
	}
	for _, tick := range []time.Duration{
		100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second, 10 * time.Second, time.Minute,
	} {
		times, longest := overstays(rand.New(rand.NewPCG(11, uint64(tick))), tick, cuts)
		assert.Zero(t, times, "servers with a tickTime of %v: holds outlast their session in %d of %d cuts, by up to %v", tick, times, cuts, longest)
	}
}
