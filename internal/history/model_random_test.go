package history

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// simulated is a random history of a correct lock: client after client holds, and each knows what
// the contract lets it know.
func simulated(rng *rand.Rand, holds int) *History {
	var s script
	now, token := int64(1), uint64(1)
	const ttl = 300
	ms := func(n int64) int64 { return rng.Int64N(n) }
	idle := []int64{0, 0, 0} // since when each client has returned
	for range holds {
		c := rng.IntN(2)
		granted := max(now, idle[c]) + ms(5)
		token += 1 + rng.Uint64N(3)
		got := granted + ms(20)
		s = append(s, call(c, OpLock, idle[c]+ms(max(1, granted-idle[c]+1)), got))
		deadline := granted + ttl
		if rng.IntN(10) == 0 { // it slept
			got = deadline + ms(ttl)
			s[len(s)-1].Return = got * 1e6
		}
		at := got
		for at < deadline && rng.IntN(8) > 0 {
			from := at + ms(60)
			if from >= deadline {
				break
			}
			truth := from + ms(min(5, deadline-from))
			at = truth + ms(3)
			if rng.IntN(2) == 0 {
				s = append(s, sample(c, from, at, token))
				continue
			}
			s = append(s, call(c, OpExtend, from, at))
			deadline = truth + ttl
		}
		at += ms(2)
		switch {
		case at >= deadline || rng.IntN(6) == 0: // lost
			at = max(at, deadline+ms(30))
			if rng.IntN(2) == 0 {
				s = append(s, sample(c, at, at+ms(3), 0))
				at += 3
			}
			now = deadline
			idle[c] = at + 1 + ms(20)
			s = append(s, call(c, OpUnlock, at+1, idle[c], IsLost))
		default:
			truth := at + ms(min(20, deadline-at))
			now = truth
			idle[c] = truth + ms(20)
			returned := NoErr
			if rng.IntN(6) == 0 {
				returned = OtherErr
			}
			s = append(s, call(c, OpUnlock, at, idle[c], returned))
		}
		idle[c]++
	}
	return s.played(Exclusive)
}

// TestModel_acceptsWhatALockCanDo, and refuses it with one thing changed.
func TestModel_acceptsWhatALockCanDo(t *testing.T) {
	spoilt := map[string]int{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := simulated(rng, 2+rng.IntN(60))
		j := h.Check()
		require.Equal(t, porcupine.Ok, j.result, "seed %d:\n%s", seed, lines(h, j.witness))
		for i, what := range slices.Sorted(maps.Keys(corruptions)) {
			spoil, rng := corruptions[what], rand.New(rand.NewPCG(seed, uint64(i)+1)) // not by the order of a map
			bad := script(slices.Clone(h.Events)).played(Exclusive)
			if spoil(bad, rng) {
				spoilt[what]++
				assert.Equal(t, porcupine.Illegal, bad.Check().result, "seed %d: %s", seed, what)
			}
		}
	}
	for what := range corruptions {
		assert.Greater(t, spoilt[what], 50, what)
	}
}

// corruptions change one thing, and say whether they found what to change.
var corruptions = map[string]func(h *History, rng *rand.Rand) bool{
	"the tokens of two holds swapped": func(h *History, rng *rand.Rand) bool {
		var tokens []uint64
		for _, e := range h.Events {
			if e.Token > 0 && !slices.Contains(tokens, e.Token) {
				tokens = append(tokens, e.Token)
			}
		}
		if len(tokens) < 2 {
			return false
		}
		i := rng.IntN(len(tokens) - 1)
		for k, e := range h.Events {
			switch e.Token {
			case tokens[i]:
				h.Events[k].Token = tokens[i+1]
			case tokens[i+1]:
				h.Events[k].Token = tokens[i]
			}
		}
		return true
	},
	"a token that was there before": func(h *History, rng *rand.Rand) bool {
		var seen []int
		for i, e := range h.Events {
			if e.Token > 0 {
				seen = append(seen, i)
			}
		}
		if len(seen) == 0 || h.Events[seen[0]].Token == h.Events[seen[len(seen)-1]].Token {
			return false
		}
		first := h.Events[seen[0]].Token
		last := h.Events[seen[len(seen)-1]].Token
		for i := range h.Events {
			if h.Events[i].Token == last {
				h.Events[i].Token = first
			}
		}
		return true
	},
	"a hold believed when another holds": func(h *History, rng *rand.Rand) bool {
		for i, e := range h.Events { // an Unlock, and then the other's hold up to its own
			if e.Op != OpUnlock {
				continue
			}
			for _, o := range h.Events[i+1:] {
				if o.Token > 0 && o.Client != e.Client && o.Call > e.Return {
					h.Events = append(h.Events, sample(e.Client, o.Return/1e6, o.Return/1e6, o.Token))
					return true
				}
			}
		}
		return false
	},
	"an Unlock that comes after the next one's": func(h *History, rng *rand.Rand) bool {
		unlocks := map[int]int{}
		for i, e := range h.Events {
			if e.Op != OpUnlock || e.Err != NoErr {
				continue
			}
			for _, o := range h.Events[i+1:] {
				if o.Client == e.Client {
					break
				}
				if o.Op == OpUnlock && o.Err == NoErr {
					unlocks[i] = int(o.Return) + 1
					break
				}
			}
		}
		if len(unlocks) == 0 {
			return false
		}
		all := slices.Sorted(maps.Keys(unlocks))
		i := all[rng.IntN(len(all))]
		h.Events[i].Call, h.Events[i].Return = int64(unlocks[i]), int64(unlocks[i])
		return noneBetween(h, i)
	},
	"a loss taken back by Unlock": func(h *History, rng *rand.Rand) bool {
		for i, e := range h.Events {
			if i > 0 && e.Err == IsLost && h.Events[i-1].Op == OpToken && h.Events[i-1].Token == 0 {
				h.Events[i].Err = NoErr
				return true
			}
		}
		return false
	},
}

// noneBetween reports whether the client of the event at i does nothing else while that goes on.
func noneBetween(h *History, i int) bool {
	e := h.Events[i]
	for k, o := range h.Events {
		if k > i && o.Client == e.Client && o.Call <= e.Return {
			return false
		}
	}
	return true
}
