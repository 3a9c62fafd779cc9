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
	n, seeds := ledgerGrants()
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
				l := newLedger(t, s, seed)
				require.NoError(t, l.run(func() error { return test.step(l) }, n), "seed %d, after %d grants", seed, l.grants)
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
				_, err := l.eval(Release, h.keys, []any{h.owner, h.token, 0})
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

func TestForgotten_eachPartIsNeeded(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisClock())
	for _, test := range []struct {
		name, was, is string
		step          func(*ledger) error
	}{
		{"a take that ignores the mark", "elseif not last and token <= floor then", "elseif false then", (*ledger).anyClock},
		{"no end to what the clock alone decides", "clock <= due and", "", (*ledger).anyClock},
		{"no end to the cover the long way", " and now <= tonumber(string.sub(due, 1, WHOLE - 1))", "", (*ledger).anyClock},
		{"a cover of tokens that are far ahead", "last < now + AHEAD and", "", (*ledger).proposals},
		{"a cover of new names", "local unmarked = last and last < now + AHEAD and", "local unmarked =", (*ledger).anyClock},
		{"a mark that covers new names alone", "not unmarked and (KEYS[2] or tag == '') and write_mark", "not last and write_mark", (*ledger).anyClock},
		{"a clock that was set back and is not noticed", "if now < written then", "if false then", (*ledger).anyClock},
		{"a floor that does not rise", "(token > now + AHEAD or floor > now)", "false", (*ledger).anyClock},
		{"a raise without the mark", "if write_mark(tag, now, token, read_mark(tag, now)) == 0 and token > now + AHEAD then", "if false then", (*ledger).proposals},
		{"proposals below the floor", "and proposal > floor)", ")", (*ledger).setBack},
		{"proposals that are too far ahead", "AHEAD = KEEP * 500 --", "AHEAD = KEEP * 5000 --", (*ledger).proposals},
		{"proposals for a free lock that are too far ahead", "tonumber(proposed) <= clock + AHEAD", "true", (*ledger).proposals},
		{"proposals that are too old", "proposal >= now - 1000000", "true", (*ledger).proposals},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(4) {
				l := newLedger(t, s, seed)
				l.build = l.changed(t, test.was, test.is)
				if err := l.run(func() error { return test.step(l) }, 10000); err != nil {
					t.Log(l.grants, err)
					return
				}
			}
			assert.Fail(t, "no token fell")
		})
	}
}
