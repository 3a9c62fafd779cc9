// Package histories has the scenarios of random histories: clients make random calls while faults
// are injected and undone, and a checker judges the replies.
package histories

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
	"github.com/go-locker/locker/internal/history"
)

const (
	oneLock  = "A lock is held by at most one holder, its tokens rise, and a lost hold stays lost"
	keptData = "the server crashes and keeps its data"
	lostData = "the server loses its data"
)

// Rows are the scenarios of random histories of Lockers.
var Rows = []scenario.Row{{
	Name:    "a random history is that of one lock",
	Promise: oneLock + ", whatever clients do at the same time.",
	Sources: []string{source.Herlihy},
	Shows:   locker.Exclusive,
	Body:    random(history.Undisturbed),
}, {
	Name:    "a random history is that of one lock though servers are silent",
	Promise: oneLock + ", however long the server is silent.",
	Sources: []string{source.Herlihy, source.MostNews},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Stops},
	Body:    random(history.Exclusive, stopping),
}, {
	Name:    "a random history is that of one lock though clients are cut off",
	Promise: oneLock + ", whatever happens to requests and replies.",
	Sources: []string{source.Herlihy, source.RedsyncReply, source.MutexRetry},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Links},
	Body:    random(history.Exclusive, cutting),
}, {
	Name:    "a random history is that of one lock though processes are stopped",
	Promise: oneLock + ", however long a process is stopped.",
	Sources: []string{source.Herlihy, source.Kleppmann},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{need.Processes},
	Body:    random(history.Exclusive, pausing),
}, {
	Name:    "a random history is that of one lock though faults of all kinds come and go",
	Promise: oneLock + ", through all faults that a lock can survive.",
	Sources: []string{source.Herlihy, source.JepsenEtcd},
	Shows:   locker.Exclusive,
	Needs:   []need.Need{mixes},
	Body:    func(e *party.Env) { mixedHistories(e) },
}, {
	Name: "tokens of a random history rise though holds are revoked",
	Promise: "Tokens rise even if holds are ended at the backend. Such a hold cannot be " +
		"extended, and its holder believes in it no longer than its TTL.",
	Sources: []string{source.Herlihy, source.RedissonToken},
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Revokes, need.Tokens},
	Body:    random(history.Revocable, revoking),
}, {
	Name:      "a random history is that of one lock though servers crash",
	Promise:   oneLock + ", even if the server crashes.",
	Sources:   []string{source.Herlihy, source.Redlock},
	Shows:     locker.Failover,
	Condition: keptData,
	Needs:     []need.Need{need.Kills},
	Body:      random(history.Exclusive, killing),
}, {
	Name:      "a random history is that of one lock though servers lose their data",
	Promise:   oneLock + ", even if the server loses its data.",
	Sources:   []string{source.Herlihy, source.Antirez},
	Condition: lostData,
	Needs:     []need.Need{need.Wipes},
	Body:      random(history.Exclusive, wiping),
}, {
	Name:      "tokens of a random history rise though servers lose their data",
	Promise:   "Tokens rise even if data are lost.",
	Sources:   []string{source.Kleppmann, source.Antirez},
	Shows:     locker.FencingDurable,
	Condition: lostData,
	Needs:     []need.Need{need.Wipes, need.Tokens},
	Body:      random(history.Fenced, wiping),
}, {
	Name:      "a random history is that of one lock though another server takes over",
	Promise:   oneLock + ", even if a server is lost.",
	Sources:   []string{source.Herlihy, source.CallMe},
	Shows:     locker.Failover,
	Condition: "failover",
	Needs:     []need.Need{need.FailsOver},
	Body:      random(history.Exclusive, failing),
}, {
	Name:      "tokens of a random history rise though another server takes over",
	Promise:   "Tokens rise even if data are lost.",
	Sources:   []string{source.Kleppmann, source.CallMe},
	Shows:     locker.FencingDurable,
	Condition: "failover",
	Needs:     []need.Need{need.FailsOver, need.Tokens},
	Body:      random(history.Fenced, failing),
}, {
	Name:      "a random history is that of one lock though the server's clock jumps",
	Promise:   oneLock + ", even if a wall clock is set.",
	Sources:   []string{source.Herlihy, source.Antirez},
	Shows:     locker.Exclusive,
	Condition: "the server's clock jumps",
	Needs:     []need.Need{need.Clocks},
	Body:      random(history.Exclusive, shifting),
}}

// ReadWrite are the scenarios of random histories of RWLockers.
var ReadWrite = []scenario.Row{{
	Name: "a random history of readers and writers is that of one read-write lock",
	Promise: "A writer is the only holder. Shares that are held at the same time have the same " +
		"token. From each writer or group of shares to the next, tokens rise.",
	Sources: []string{source.Herlihy},
	Needs:   []need.Need{need.ReadsWrites},
	Chance:  true,
	Lasts:   historiesLast,
	Body:    plan{demand: history.Undisturbed, shares: true}.histories,
}}

func init() {
	for i := range Rows {
		Rows[i].Chance, Rows[i].Lasts = true, historiesLast
	}
}

// plan has the parameters that the histories of a scenario share.
type plan struct {
	demand  history.Demand
	nemeses []nemesis
	shares  bool // clients are readers and writers, whose holds do not expire
}

// random returns the body of a scenario.
func random(d history.Demand, nemeses ...nemesis) func(*party.Env) {
	return func(e *party.Env) { plan{demand: d, nemeses: nemeses}.histories(e) }
}

func mixedHistories(e *party.Env) {
	all, err := mixture(e.Harness)
	if err != nil {
		e.Fatalf("%v", err)
	}
	d := history.Exclusive
	for _, z := range all {
		if z.field() == revoking.field() {
			d = history.Revocable
		}
	}
	plan{demand: d, nemeses: all}.histories(e)
}

// histories runs and checks one history after the other, each short enough for the checker, until
// the time is up.
func (n plan) histories(e *party.Env) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	round := n.round(e)
	total := score{faults: map[string]int{}}
	// In less than half a round faults hardly hit a holder.
	for left := historyTime(e.Harness); total.histories == 0 || left >= round/2; left -= round {
		n.history(e, &total, seed, min(left, round))
		seed++
	}
	e.Logf("%v", total)
	if err := total.shortcoming(); err != nil {
		e.Doubtf("%w", err)
	}
}

// round returns the length of a history, which is shorter if its fault is injected only once.
func (n plan) round(e *party.Env) time.Duration {
	switch {
	case n.shares: // the checker may not decide a longer one in time
		return time.Second
	case len(n.nemeses) == 1 && n.nemeses[0].once:
		return max(time.Second, 4*e.TTL)
	case slices.ContainsFunc(n.nemeses, func(z nemesis) bool { return z.brief }):
		return max(5*time.Second, 8*e.TTL)
	default:
		return max(5*time.Second, 5*e.TTL)
	}
}

// hits counts the faults that hit a holder and took effect, as far as the history shows it. It
// returns an error if a kind of fault did nothing too often: hits of this kind are chance, and do
// not count.
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

// The number of faults that have to hit holders: a history goes on for up to twice its time until
// there are enough, and for up to four times its time until there are the fewest.
const (
	enough = 4
	fewest = 2
)

// score sums up histories.
type score struct {
	histories, calls, operations, holds, lost, unknown int
	faults                                             map[string]int
	checking                                           time.Duration
	undecided                                          []uint64
	hits, wanted                                       int // faults that hit holders
	fewest                                             int // minimum of holds
	idle                                               error
}

// String is for the log.
func (s score) String() string {
	return fmt.Sprintf("%d histories, %d calls, %d operations checked in %v: %d holds, %d of "+
		"them lost, %d outcomes unknown, faults: %v, %d of a holder",
		s.histories, s.calls, s.operations, s.checking.Round(time.Millisecond), s.holds, s.lost, s.unknown, s.faults, s.hits)
}

// shortcoming returns why the histories are inconclusive, or nil.
func (s score) shortcoming() error {
	total := 0
	for _, n := range s.faults {
		total += n
	}
	switch {
	case s.idle != nil:
		return s.idle
	case s.undecided != nil:
		return fmt.Errorf("%w: the checker could not decide within %v of the histories with the "+
			"seeds %v", engine.ErrInDoubt, history.CheckTime, s.undecided)
	case s.hits < s.least():
		return fmt.Errorf("%w: of %d faults %d hit a holder and were seen to act; want %d. Does your fault do nothing? %v",
			engine.ErrInDoubt, total, s.hits, s.least(), s.faults)
	case s.holds < s.fewest:
		return fmt.Errorf("%w: there were only %d holds; want %d", engine.ErrInDoubt, s.holds, s.fewest)
	}
	return nil
}

// least returns how many faults have to hit holders. Of several histories some may have bad luck.
func (s score) least() int {
	if s.histories > 1 {
		return (s.wanted + 1) / 2
	}
	return s.wanted
}
