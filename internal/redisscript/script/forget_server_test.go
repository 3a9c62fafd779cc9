package script

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestForgotten_tokensRise(t *testing.T) {
	testwait.LeftToModels(t)
	s := testserver.Redis(t, testserver.RedisClock())
	n, seeds := 2000, uint64(1)
	if testwait.Exhaustive() {
		n, seeds = 10_000, 2
	}
	for _, test := range []struct {
		name string
		step func(*ledger) error
	}{
		{"any clock", (*ledger).anyClock},
		{"proposals", (*ledger).proposals},
		{"proposals, and a clock that is set back", (*ledger).setBack},
		{"lost data", (*ledger).lostData},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range seeds {
				for l := newLedger(t, s, seed); l.grants < n; {
					require.NoError(t, test.step(l), "seed %d, after %d grants", seed, l.grants)
				}
			}
		})
	}
}

// The limit: a clock that is two minutes fast for a moment, in which nobody takes a lock, makes the
// server forget what it had Granted, and leaves no trace: all that is left is the mark, which has
// no names. It is the same whether the name that is taken next is the one that was forgotten or a
// new one. So is the answer: the proposal or the clock, which is right for a new name, and too
// small for one whose token was ahead of the clock.
func TestForgotten_cannotTellAForgottenNameFromANewOneIfTheClockWasFastForAMoment(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	const name, other = "locker:1", "locker:2"
	for _, c := range []struct {
		name            string
		ahead, proposal time.Duration // of the clock: the latest token, and the next proposal; 0: the clock is the token
		back            time.Duration // after the latest take: to where the clock is set
	}{
		{"a proposal was ahead of the clock", 5 * time.Second, time.Second / 2, time.Second},
		{"the clock is set back to before the latest take", 0, 0, -450 * time.Millisecond},
	} {
		// history has a name taken and forgotten, and returns what is left, and what comes of
		// taking name then.
		history := func(taken string) (mark map[string]string, err error) {
			l := newLedger(t, s, 1)
			l.anywhere, l.drivers = true, l.drivers[:1]
			proposal := func(ahead time.Duration) int64 {
				if ahead == 0 {
					return 0
				}
				return l.now() + ahead.Microseconds()
			}
			for _, ahead := range []time.Duration{0, c.ahead} { // the second is covered by the mark that the first has written
				l.shift(time.Second / 2)
				require.NoError(t, l.take(taken, proposal(ahead)))
				h := l.holds[len(l.holds)-1]
				_, err := l.eval(Release, h.keys, h.owner, h.token, 0)
				require.NoError(t, err)
			}
			l.shift(2 * Keep)
			l.visit()
			l.shift(time.Duration(l.latest-l.now())*time.Microsecond + c.back)
			require.Equal(t, []string{markKey}, l.rdb.Keys(t.Context(), "*").Val())
			mark = l.rdb.HGetAll(t.Context(), markKey).Val()
			delete(mark, "clock")
			return mark, l.take(name, proposal(c.proposal))
		}
		left, err := history(other)
		require.NoError(t, err, c.name)
		fell := false
		for tries := 0; !fell && tries < 20; tries++ { // what takes half a second shows nothing
			again, err := history(name)
			require.Equal(t, left, again, c.name)
			fell = err != nil
		}
		assert.True(t, fell, "%s: the token falls", c.name)
	}
}

// A hand-over reads the lock alone, as the take of a free one does, while the mark covers it.
func TestMark_isNotReadForAHandOverThatItCovers(t *testing.T) {
	t.Parallel()
	covered := &Mark{}
	covered.covered.Store(9e15)
	for _, c := range []struct {
		name  string
		mark  *Mark
		ahead int64 // of the clock, the last token
		reads int   // of the lock, and of the mark
	}{
		{"covered", covered, 0, 1},
		{"covered, and the last token is ahead by 20 s", covered, 20e6, 1},
		{"the cover has ended", &Mark{}, 0, 2},
		{"the clock may not pass the token before that is forgotten", covered, 31e6, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := atServerOf(t, testserver.Redis(t))
			h := s.ask("holder", ttl, 0)
			require.EqualValues(t, Granted, h.Status)
			last := h.Token
			if c.ahead > 0 {
				last = s.serverTime() + c.ahead
				require.EqualValues(t, 1, s.run(Raise, []any{"holder", last, ""}))
			}
			require.EqualValues(t, Held, s.ask("-P/waiter", ttl, 0).Status)
			require.EqualValues(t, 1, s.release("holder", last, 0))
			require.Equal(t, ">-P/waiter", s.owner())
			before := s.server.Calls()["hmget"]
			a := s.take(Take, "-P/waiter", ttl, Due{9e15, 0}.Arg(c.mark, 0), "", 0)
			require.EqualValues(t, Granted, a.Status)
			assert.Greater(t, a.Token, last)
			assert.Equal(t, c.reads, s.server.Calls()["hmget"]-before)
			assert.Equal(t, c.reads > 1, a.covered > 0, "only what was read is told")
		})
	}
}

// After a failover, or behind a proxy, a Client hears of the marks of several servers.
func TestMark_whatThatOfAnotherServerCoversDoesNotCount(t *testing.T) {
	const now int64 = 1_700_000_000_000_000
	m := &Mark{}
	m.OnGrant(Answer{Now: now, covered: now + coverMicros})
	m.OnGrant(Answer{Now: now + coverMicros/2})
	assert.Equal(t, now+coverMicros, m.covered.Load(), "by the same clock")
	m.OnGrant(Answer{Now: now - coverMicros})
	assert.Zero(t, m.covered.Load(), "by a clock that is behind, the mark of which is not known")
}
