package history

import (
	"math"
	"slices"
	"time"
)

// Revoke is the kind of fault that ends a hold at the backend. It may come too late, and then finds
// nothing.
const Revoke = "Revoke"

// SlowToAct is how long after it has returned a fault may begin to act.
const SlowToAct = 100 * time.Millisecond

// Hits counts the faults of a kind: those that were caused, those that acted as far as the history
// shows it, and those of these that hit a holder.
type Hits struct{ All, Acted, OfHolders int }

// Hits counts the faults of each kind.
func (h *History) Hits() map[string]Hits {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]Hits{}
	for _, f := range h.Faults {
		c := counts[f.Kind]
		if f.Kind != Revoke || f.Until > 0 { // else nobody was known to hold
			c.All++
			if h.acted(f) {
				c.Acted++
				if f.Until > 0 {
					c.OfHolders++
				}
			}
		}
		counts[f.Kind] = c
	}
	return counts
}

// acted reports whether a fault did what it says, by what clients were told. Of what cannot be
// seen, such as a clock that jumps, it reports true.
func (h *History) acted(f Fault) bool {
	switch {
	case f.Answered:
		return false
	case f.Kind == Revoke:
		return h.endedEarly(f)
	case f.Mutes == Nobody:
		return true
	default:
		return h.nothingGranted(f)
	}
}

// nothingGranted reports whether those whom a fault kept from the backend were granted nothing
// while it lasted.
func (h *History) nothingGranted(f Fault) bool {
	from := f.Set + min(int64(SlowToAct), (f.Undone-f.Set)/2)
	for _, e := range h.Events {
		asked := e.Op != OpExtend // some Lockers extend without a request
		if (f.Mutes == Everyone || e.Client == f.Client) && e.Call >= from && e.Return <= f.Undone && e.grants() && asked {
			return false
		}
	}
	return true
}

// grants reports whether e gave a hold, or prolonged one.
func (e Event) grants() bool {
	return e.Err == NoErr && (e.Op == OpLock || e.Op == OpTryLock || e.Op == OpExtend)
}

// endedEarly reports whether the victim's hold ended before its time: its client was told so, or
// another was granted the lock.
func (h *History) endedEarly(f Fault) bool {
	end := min(f.From+(f.Until-f.From)*3/4, h.expiry(f))
	for _, e := range h.Events {
		if e.Client == f.Client && e.Op == OpUnlock && e.Err != IsLost && e.Return > f.From {
			end = min(end, e.Call)
		}
	}
	name := h.Clients[f.Client].Name
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		switch {
		case e.Return < f.From || e.Return > end:
			return false
		case e.Client == f.Client:
			return e.tellsLoss()
		default:
			return h.Clients[e.Client].Name == name && e.Op != OpExtend && e.grants()
		}
	})
}

// expiry returns a time shortly before the victim's hold would have ended by itself.
func (h *History) expiry(f Fault) (at int64) {
	c := h.Clients[f.Client]
	if c.Renews {
		return math.MaxInt64
	}
	for _, e := range h.Events {
		if e.Client == f.Client && e.Call < f.From && e.grants() {
			at = max(at, e.Call+int64(c.TTL*9/10))
		}
	}
	return at
}

// tellsLoss reports whether e says, to one who holds, that the hold is lost.
func (e Event) tellsLoss() bool {
	return e.Op == OpLost || e.Op == OpToken && e.Token == 0 || e.Err == IsLost
}
