package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// legal checks the holds of one name, in parts: what the checker takes grows fast with the length
// of a history.
func legal(holds []ops, limit time.Duration) porcupine.CheckResult {
	result, end, last, phase := porcupine.Ok, time.Now().Add(limit), uint64(0), uint64(0)
	for _, part := range parts(holds) {
		from, before := model, mutex{last: last, phase: phase} // a checker that ran out of time goes on for a moment
		from.Init = func() any { return before }
		left := max(time.Until(end), limit/10) // 0 is no limit
		switch porcupine.CheckOperationsTimeout(from, slices.Concat(part...), left) {
		case porcupine.Illegal:
			return porcupine.Illegal
		case porcupine.Unknown:
			result = porcupine.Unknown
		}
		if token, share := newest(part); token > last {
			last, phase = token, 0
			if share {
				phase = token
			}
		}
	}
	return result
}

// parts cuts a history where nothing is under way and nobody holds. All of a part comes before the
// next then, which begins with a free lock and the largest token so far: the parts are legal, one
// after the other, if and only if the whole is.
func parts(holds []ops) [][]ops {
	holds = slices.SortedStableFunc(slices.Values(holds), func(a, b ops) int { return cmp.Compare(a.begin(), b.begin()) })
	var all [][]ops
	first, over := 0, int64(math.MinInt64) // when all before is over
	for i, s := range holds {
		if i > first && s.begin() > over {
			all = append(all, holds[first:i])
			first = i
		}
		over = max(over, s.over())
	}
	return append(all, holds[first:])
}

// newest is the largest token, and whether a share had it.
func newest(holds []ops) (token uint64, share bool) {
	for _, s := range holds {
		of := slices.IndexFunc(s, func(op porcupine.Operation) bool {
			kind := op.Input.(move).kind
			return kind == takes || kind == mints
		})
		if of < 0 {
			continue
		}
		v := s[of].Input.(move)
		if v.token < token {
			continue
		}
		weak := v.share || slices.ContainsFunc(s, func(op porcupine.Operation) bool { return op.Input.(move).kind == weakens })
		token, share = v.token, weak || share && v.token == token
	}
	return token, share
}

// begin is the first call.
func (s ops) begin() int64 {
	return slices.MinFunc(s, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }).Call
}

// over is the last return, or never if what was taken may still be held.
func (s ops) over() (at int64) {
	held, ended := false, false
	for _, op := range s {
		at = max(at, op.Return)
		held = held || op.Input.(move).kind == takes
		ended = ended || op.Input.(move).kind == ends
	}
	if held && !ended {
		return math.MaxInt64
	}
	return at
}
