package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-locker/locker/internal/history"
)

// errInDoubt is of a history that says nothing of the lock: it was not disturbed as it was to be, or the checker could not decide. No
// deviation of the backend explains it.
var errInDoubt = errors.New("in doubt")

// hits counts the faults that hit a holder, and acted, as far as the history shows it. It returns
// an error if a kind of fault did nothing too often: its hits are chance, and do not count.
func hits(h *history.History) (n int, err error) {
	counts := h.Hits()
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		c, least := counts[kind], 0.75
		if kind == history.Revoke {
			least = 0.2
		}
		if float64(c.Acted) < least*float64(c.All) {
			err = idle(kind, "of %d times in a random history %d did, by what clients were told then", c.All, c.Acted)
			continue
		}
		n += c.OfHolders
	}
	return n, err
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
		return fmt.Errorf("%w: the checker could not decide within %v of the histories with the seeds %v", errInDoubt, history.CheckTime, s.undecided)
	case s.hits < s.least():
		return fmt.Errorf("%w: of %d faults %d hit a holder and were seen to act; want %d. Does your fault do nothing? %v",
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
	hits, err := hits(s.History)
	if err != nil {
		return true // more of the same helps nobody
	}
	if took > extra/2*s.lasts {
		return hits >= least
	}
	return hits >= most
}
