package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/tb"

	"github.com/go-locker/locker"
)

var (
	seedFlag = flag.Uint64("conformance.seed", 0, "of what clients do in random histories, and of the faults (default: another each time)")
	forFlag  = flag.Duration("conformance.for", 0, "how long all random histories of one Harness take together (default: about 3 s each)")
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
	lasts := func(h Harness) time.Duration { return 6*historyTime(h) + history.CheckTime }
	for i := range historyRows {
		historyRows[i].chance, historyRows[i].lasts = true, lasts
	}
	readWriteHistoryRows[0].lasts = lasts
}

// someSeconds is how long a random history takes unless a flag says otherwise, and the backend is slow.
var someSeconds = 3 * time.Second

// historyTime is how long each of the histories of h takes.
func historyTime(h Harness) time.Duration {
	if *forFlag == 0 {
		return max(someSeconds, 3*h.TTL)
	}
	rows := 1
	for _, z := range nemeses {
		if z.need.met(h) {
			rows += z.rows
		}
	}
	for _, n := range []need{mixes, readsWrites} {
		if n.met(h) {
			rows++
		}
	}
	return *forFlag / time.Duration(rows)
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

// simulation is one random history in the making.
type simulation struct {
	*env
	*history.History
	names      []string
	players    []*player
	nemeses    []nemesis
	lasts      time.Duration
	failedOver bool
	going      context.Context // until the time is up
}

// over reports whether the time is up.
func (s *simulation) over() bool { return s.going.Err() != nil }

// scoped returns an env for one history of several. What is made for it ends with tidy.
func (e *env) scoped() (_ *env, tidy func()) {
	inner := *e
	inner.Scope = tb.Within(e, e.Fatalf)
	tidy = func() { within(time.Minute, inner.End) }
	e.Cleanup(tidy)
	return &inner, tidy
}

// history makes one, checks it, and adds it to total.
func (e *env) history(total *score, d history.Demand, nemeses []nemesis, seed uint64, lasts time.Duration) {
	inner, tidy := e.scoped()
	defer tidy()
	s := &simulation{env: inner, History: &history.History{Seed: seed, Demand: d}, nemeses: nemeses, lasts: lasts}
	if s.grace > 0 {
		s.serves()
	}
	s.makeClients(rand.New(rand.NewPCG(seed, 0)))
	e.Logf("seed %d: %d clients, %d names, for %v", seed, len(s.players), len(s.names), lasts)
	s.runClients()
	began := time.Now()
	j := s.Check()
	s.addTo(total, j)
	total.checking += time.Since(began)
	switch {
	case j.Refused():
		e.refuse(s.History, j)
	case j.Undecided():
		total.undecided = append(total.undecided, seed)
	}
}

// serves waits until a name that nobody has held can be locked: an earlier trial may have had the
// servers crash.
func (s *simulation) serves() {
	p := s.party("a probe", s.name(), s.ttl)
	p.take()
	_ = p.unlock()
}

// runClients has all clients, and the faults, go on until the time is up.
func (s *simulation) runClients() {
	ctx, cancel := context.WithTimeout(s.Context(), extra*s.lasts)
	defer cancel()
	s.going = ctx
	s.Begin()
	var wg sync.WaitGroup
	join := func(f func()) {
		wg.Add(1)
		s.spawn(func() {
			defer wg.Done()
			f()
		})
	}
	for _, p := range s.players {
		join(func() { p.play(ctx) })
	}
	if len(s.nemeses) > 0 {
		join(func() { s.injectFaults(ctx, rand.New(rand.NewPCG(s.Seed, 1))) })
	}
	sleepUntil(ctx, s.lasts)
	for !s.over() && !s.satisfied(time.Duration(s.Now())) {
		sleepUntil(ctx, settle)
	}
	cancel()
	wg.Wait()
	if s.Context().Err() != nil {
		s.failf("the scenario was ended") // by one who has said why
	}
}

func (s *simulation) addTo(total *score, j history.Judgement) {
	total.histories++
	total.calls += len(s.Events)
	total.operations += j.Operations
	total.fewest += s.fewestHolds()
	hits, idle := hits(s.History)
	_, wanted := s.wanted()
	total.hits += hits
	total.wanted += wanted
	total.idle = errors.Join(total.idle, idle)
	for _, f := range s.Faults {
		total.faults[f.Kind]++
	}
	for _, p := range s.players {
		total.holds += p.holds
		total.lost += p.losses
	}
	for _, e := range s.Events {
		if e.Err == history.OtherErr {
			total.unknown++
		}
	}
}

// makeClients makes the clients: many of a busy name, whose holds are short, and few of names whose holds are
// long, so that a client is often alone there.
func (s *simulation) makeClients(rng *rand.Rand) {
	scenes := []*scene{{clients: 5, slow: 0.002}, {clients: 3, slow: 0.2}, {clients: 1, slow: 0.8}, {clients: 2, slow: 0.6}, {clients: 3, slow: 0.6}}
	if rng.IntN(2) == 0 {
		scenes = append(scenes, &scene{clients: 2 + rng.IntN(3), slow: rng.Float64() / 4})
	}
	kinds := s.kinds()
	for _, at := range scenes {
		name := s.name()
		s.names = append(s.names, name)
		for range at.clients {
			id := len(s.players)
			ttl := s.ttl
			if rng.IntN(2) == 0 {
				ttl *= 2
			}
			p := kinds[id%len(kinds)](name, ttl)
			p.id, p.simulation, p.scene, p.alarm = id, s, at, make(chan struct{}, 1)
			p.rng = rand.New(rand.NewPCG(s.Seed, uint64(2+id)))
			s.players = append(s.players, p)
			p.renews = p.renews || !expire.met(s.h)
			s.Clients = append(s.Clients, history.Client{Who: p.who, Name: name, TTL: p.ttl, Renews: p.renews})
		}
	}
}

// kinds make the kinds of clients that there are in this history, and that its faults can befall.
func (s *simulation) kinds() []func(name string, ttl time.Duration) *player {
	number := 0
	who := func(kind string) string {
		number++
		return fmt.Sprintf("%s %d", kind, number)
	}
	plain := func(name string, ttl time.Duration) *player {
		return &player{party: s.party(who("client"), name, ttl)}
	}
	var special, all []func(string, time.Duration) *player
	for _, z := range s.nemeses {
		switch z.field() {
		case cutting.field():
			s.relies(s.passes())
			special = append(special, func(name string, ttl time.Duration) *player {
				p, w := s.link(who("linked client"), name, ttl)
				return &player{party: p, wire: w}
			})
		case pausing.field():
			special = append(special, func(name string, ttl time.Duration) *player {
				p := s.process(who("process"), name, ttl)
				return &player{party: p.party, process: p}
			})
		}
	}
	common := []func(string, time.Duration) *player{plain}
	if s.h.Client != nil && renews.met(s.h) {
		renewing := s.client(s.ttl, true)
		common = append(common, func(name string, _ time.Duration) *player {
			return &player{party: renewing(who("renewing Locker"), name), renews: true}
		})
	}
	if special == nil {
		return common
	}
	for i := range len(common) * len(special) { // every other one
		all = append(all, common[i%len(common)], special[i%len(special)])
	}
	return all
}
