package zookeeper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/clock"
)

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
		ttl := 2*tick + time.Duration(random.Int64N(int64(18*tick))).Truncate(time.Millisecond)
		e := &ensemble{random: random, tick: tick, ttl: ttl}
		e.phase, e.asked = e.some(tick), e.some(tick/2)
		e.heard(0)
		d := newDriver(nil)
		l := newSession(d, ttl, false).heartbeats
		_ = d.Close()
		l.confirm(start)
		for now, seen := time.Duration(0), 0; seen < perSession; {
			now += e.some(pace(ttl) / heartbeatRate)
			sent, received := now, now+e.some(5*time.Millisecond)
			e.upTo(received)
			now = received + e.some(5*time.Millisecond)
			e.touched = true
			if random.IntN(3) == 0 {
				seen++
				l.confirm(l.confirmedBy(start.Add(sent)))
				deadline := l.expires().Sub(start) - ttl/100 - 2*time.Millisecond // as the core has it
				if over := deadline - e.ends; over > 0 {
					times, longest = times+1, max(longest, over)
				}
			}
			l.record(start.Add(sent), start.Add(now), l.tick)
		}
	}
	return times, longest
}

// The servers' tick is not known, and no hold may outlast its session whatever that is.
func TestTick_thatIsNotGivenIsLongEnoughForAnyServers(t *testing.T) {
	for _, tick := range []time.Duration{
		100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second, 10 * time.Second, time.Minute,
	} {
		const cuts = 100_000
		times, longest := overstays(rand.New(rand.NewPCG(11, uint64(tick))), tick, cuts)
		assert.Zero(t, times, "servers with a tickTime of %v: holds outlast their session in %d of %d cuts, by up to %v", tick, times, cuts, longest)
	}
}
