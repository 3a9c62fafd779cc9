package conformance

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
)

const (
	oneLock  = "A lock is held by at most one holder, its tokens rise, and a lost hold stays lost"
	keptData = "the server crashes and keeps its data"
	lostData = "the server loses its data"
)

var historyRows = []row{{
	name:    "a random history is that of one lock",
	promise: oneLock + ", whatever clients do at the same time.",
	sources: []string{herlihy, contract},
	shows:   locker.Exclusive,
	body:    random(history.Undisturbed),
}, {
	name:    "a random history is that of one lock though servers are silent",
	promise: oneLock + ", however long the server is silent.",
	sources: []string{herlihy, mostNews},
	shows:   locker.Exclusive,
	needs:   []need{stops},
	body:    random(history.Exclusive, stopping),
}, {
	name:    "a random history is that of one lock though clients are cut off",
	promise: oneLock + ", whatever happens to requests and replies.",
	sources: []string{herlihy, redsyncReply, mutexRetry},
	shows:   locker.Exclusive,
	needs:   []need{links},
	body:    random(history.Exclusive, cutting),
}, {
	name:    "a random history is that of one lock though processes are stopped",
	promise: oneLock + ", however long a process is stopped.",
	sources: []string{herlihy, kleppmann},
	shows:   locker.Exclusive,
	needs:   []need{processes},
	body:    random(history.Exclusive, pausing),
}, {
	name:    "a random history is that of one lock though faults of all kinds come and go",
	promise: oneLock + ", through all faults that a lock can survive.",
	sources: []string{herlihy, jepsenEtcd},
	shows:   locker.Exclusive,
	needs:   []need{mixes},
	body:    func(e *env) { e.mixed() },
}, {
	name:    "tokens of a random history rise though holds are revoked",
	promise: "Tokens rise even if holds are ended at the backend. Such a hold cannot be extended, and its holder believes in it no longer than its TTL.",
	sources: []string{herlihy, redissonToken},
	shows:   locker.Fencing,
	needs:   []need{revokes, tokens},
	body:    random(history.Revocable, revoking),
}, {
	name:      "a random history is that of one lock though servers crash",
	promise:   oneLock + ", even if the server crashes.",
	sources:   []string{herlihy, redlock},
	shows:     locker.Failover,
	condition: keptData,
	needs:     []need{kills},
	body:      random(history.Exclusive, killing),
}, {
	name:      "a random history is that of one lock though servers lose their data",
	promise:   oneLock + ", even if the server loses its data.",
	sources:   []string{herlihy, antirez},
	condition: lostData,
	needs:     []need{wipes},
	body:      random(history.Exclusive, wiping),
}, {
	name:      "tokens of a random history rise though servers lose their data",
	promise:   "Tokens rise even if data are lost.",
	sources:   []string{kleppmann, antirez},
	shows:     locker.FencingDurable,
	condition: lostData,
	needs:     []need{wipes, tokens},
	body:      random(history.Fenced, wiping),
}, {
	name:      "a random history is that of one lock though another server takes over",
	promise:   oneLock + ", even if a server is lost.",
	sources:   []string{herlihy, callMe},
	shows:     locker.Failover,
	condition: "failover",
	needs:     []need{failsOver},
	body:      random(history.Exclusive, failing),
}, {
	name:      "tokens of a random history rise though another server takes over",
	promise:   "Tokens rise even if data are lost.",
	sources:   []string{kleppmann, callMe},
	shows:     locker.FencingDurable,
	condition: "failover",
	needs:     []need{failsOver, tokens},
	body:      random(history.Fenced, failing),
}, {
	name:      "a random history is that of one lock though the server's clock jumps",
	promise:   oneLock + ", even if a wall clock is set.",
	sources:   []string{herlihy, antirez},
	shows:     locker.Exclusive,
	condition: "the server's clock jumps",
	needs:     []need{clocks},
	body:      random(history.Exclusive, shifting),
}}

func init() {
	for i := range historyRows {
		historyRows[i].chance, historyRows[i].lasts = true, historiesLast
	}
}

// random is the body of a scenario.
func random(d history.Demand, nemeses ...nemesis) func(*env) {
	return func(e *env) { e.histories(d, nemeses) }
}

func (e *env) mixed() {
	all, err := mixture(e.h)
	if err != nil {
		e.Fatalf("%v", err)
	}
	d := history.Exclusive
	for _, z := range all {
		if z.field() == revoking.field() {
			d = history.Revocable
		}
	}
	e.histories(d, all)
}

// histories checks one after the other, each short enough for the checker, until the time is up.
func (e *env) histories(d history.Demand, nemeses []nemesis) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	round := e.round(nemeses)
	total := score{faults: map[string]int{}}
	for left := historyTime(e.h); total.histories == 0 || left >= round/2; left -= round { // in a shorter one faults hardly befall a holder
		e.history(&total, d, nemeses, seed, min(left, round))
		seed++
	}
	e.Logf("%v", total)
	if err := total.shortcoming(); err != nil {
		e.doubtf("%w", err)
	}
}

// round is how long a history is. What happens once in each makes it shorter.
func (e *env) round(nemeses []nemesis) time.Duration {
	if len(nemeses) == 1 && nemeses[0].once {
		return max(time.Second, 4*e.ttl)
	}
	if slices.ContainsFunc(nemeses, func(z nemesis) bool { return z.brief }) {
		return max(5*time.Second, 8*e.ttl)
	}
	return max(5*time.Second, 5*e.ttl)
}
