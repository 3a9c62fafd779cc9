package conformance

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/internal/history"
)

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
			err = engine.Idle(kind, "of %d times in a random history %d did, by what clients were told then", c.All, c.Acted)
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

// score is what was seen of histories.
type score struct {
	histories, calls, operations, holds, lost, unknown int
	faults                                             map[string]int
	checking                                           time.Duration
	undecided                                          []uint64
	hits, wanted                                       int // faults that hit holders
	fewest                                             int // holds that there should be
	idle                                               error
}

// String is for the log.
func (s score) String() string {
	return fmt.Sprintf("%d histories, %d calls, %d operations checked in %v: %d holds, %d of them lost, %d outcomes unknown, faults: %v, %d of a holder",
		s.histories, s.calls, s.operations, s.checking.Round(time.Millisecond), s.holds, s.lost, s.unknown, s.faults, s.hits)
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
		return fmt.Errorf("%w: the checker could not decide within %v of the histories with the seeds %v", engine.ErrInDoubt, history.CheckTime, s.undecided)
	case s.hits < s.least():
		return fmt.Errorf("%w: of %d faults %d hit a holder and were seen to act; want %d. Does your fault do nothing? %v",
			engine.ErrInDoubt, total, s.hits, s.least(), s.faults)
	case s.holds < s.fewest:
		return fmt.Errorf("%w: there were only %d holds; want %d", engine.ErrInDoubt, s.holds, s.fewest)
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
