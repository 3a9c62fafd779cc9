package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// errInDoubt is of a history that says nothing of the lock: it was not disturbed as it was to be, or the checker could not decide. No
// deviation of the backend explains it.
var errInDoubt = errors.New("in doubt")

// hits counts the faults that hit a holder, and acted, as far as the history shows it. It returns
// an error if a kind of fault did nothing too often: its hits are chance, and do not count. A
// Revoke may come too late, and then finds nothing.
func (h *history) hits() (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type count struct{ all, acted, hits int }
	counts := map[string]*count{}
	for _, f := range h.Faults {
		c := counts[f.Kind]
		if c == nil {
			c = &count{}
			counts[f.Kind] = c
		}
		if f.Kind == revoking.field() && f.Until == 0 {
			continue // nobody was known to hold
		}
		c.all++
		if h.acted(f) {
			c.acted++
			if f.Until > 0 {
				c.hits++
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		c, least := counts[kind], 0.75
		if kind == revoking.field() {
			least = 0.2
		}
		if float64(c.acted) < least*float64(c.all) {
			err = idle(kind, "of %d times in a random history %d did, by what clients were told then", c.all, c.acted)
			continue
		}
		n += c.hits
	}
	return n, err
}

// acted reports whether a fault did what it says, by what clients were told. Of what cannot be seen, such as a clock that jumps, it
// reports true.
func (h *history) acted(f faultRecord) bool {
	switch {
	case f.Answered:
		return false
	case f.Kind == revoking.field():
		return h.endedEarly(f)
	case f.Mutes == nobody:
		return true
	default:
		return h.nothingGranted(f)
	}
}

// muted is whom a fault keeps from hearing of the backend.
type muted string

const (
	nobody    muted = ""
	everyone  muted = "everyone"
	itsVictim muted = "its victim"
)

// slowToAct is how long after it has returned a fault may begin to act.
const slowToAct = settle

// nothingGranted reports whether those whom a fault kept from the backend were granted nothing
// while it lasted.
func (h *history) nothingGranted(f faultRecord) bool {
	from := f.Set + min(int64(slowToAct), (f.Undone-f.Set)/2)
	for _, e := range h.Events {
		asked := e.Op != opExtend // some Lockers extend without a request
		if (f.Mutes == everyone || e.Client == f.Client) && e.Call >= from && e.Return <= f.Undone && e.grants() && asked {
			return false
		}
	}
	return true
}

// grants reports whether e gave a hold, or prolonged one.
func (e event) grants() bool {
	return e.Err == noErr && (e.Op == opLock || e.Op == opTryLock || e.Op == opExtend)
}

// endedEarly reports whether the victim's hold ended before its time: its client was told so, or
// another was granted the lock.
func (h *history) endedEarly(f faultRecord) bool {
	end := min(f.From+(f.Until-f.From)*3/4, h.expiry(f))
	for _, e := range h.Events {
		if e.Client == f.Client && e.Op == opUnlock && e.Err != isLost && e.Return > f.From {
			end = min(end, e.Call)
		}
	}
	name := h.Clients[f.Client].Name
	return slices.ContainsFunc(h.Events, func(e event) bool {
		switch {
		case e.Return < f.From || e.Return > end:
			return false
		case e.Client == f.Client:
			return e.tellsLoss()
		default:
			return h.Clients[e.Client].Name == name && e.Op != opExtend && e.grants()
		}
	})
}

// expiry returns a time shortly before the victim's hold would have ended by itself.
func (h *history) expiry(f faultRecord) (at int64) {
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
func (e event) tellsLoss() bool {
	return e.Op == opLost || e.Op == opToken && e.Token == 0 || e.Err == isLost
}

// The faults that have to befall holders: a history goes on, for up to twice its time, until there are enough, and for up to four times its
// time until there are the fewest.
const (
	enough = 4
	fewest = 2
)

func (s *simulation) wanted() (most, least int) {
	switch {
	case len(s.nemeses) == 0:
		return 0, 0
	case s.nemeses[0].once:
		return 1, 1
	}
	return enough, fewest
}

// shortcoming is why the histories say nothing of the lock, or nil.
func (s score) shortcoming() error {
	total := 0
	for _, n := range s.faults {
		total += n
	}
	switch {
	case s.idle != nil:
		return s.idle
	case s.undecided != nil:
		return fmt.Errorf("%w: the checker could not decide within %v of the histories with the seeds %v", errInDoubt, checkTime, s.undecided)
	case s.hits < s.least():
		return fmt.Errorf("%w: of %d faults %d befell a holder, and acted as far as can be seen; want %d. Does your fault do nothing? %v",
			errInDoubt, total, s.hits, s.least(), s.faults)
	case s.holds < s.fewest:
		return fmt.Errorf("%w: there were only %d holds; want %d", errInDoubt, s.holds, s.fewest)
	}
	return nil
}

// least is how many faults have to befall holders. Of several histories some may have bad luck.
func (s score) least() int {
	if s.histories > 1 {
		return (s.wanted + 1) / 2
	}
	return s.wanted
}

// fewestHolds of a history are one for each client, and half of that where faults keep them from the backend.
func (s *simulation) fewestHolds() int {
	if len(s.nemeses) > 0 {
		return len(s.players) / 2
	}
	return len(s.players)
}

// extra is how many times as long as planned a history may take.
const extra = 4

// satisfied reports whether enough faults have befallen holders, for a history that has taken so long.
func (s *simulation) satisfied(took time.Duration) bool {
	most, least := s.wanted()
	hits, err := s.hits()
	if err != nil {
		return true // more of the same helps nobody
	}
	if took > extra/2*s.lasts {
		return hits >= least
	}
	return hits >= most
}
