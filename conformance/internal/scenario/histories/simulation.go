package histories

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/internal/history"
)

var seedFlag = flag.Uint64("conformance.seed", 0, "of what clients do in random histories, and of the faults (default: another each time)")

// simulation is one random history in the making.
type simulation struct {
	*party.Env
	*history.History
	plan
	names      []string
	players    []*player
	lasts      time.Duration
	failedOver bool
	going      context.Context // until the time is up
}

// over reports whether the time is up.
func (s *simulation) over() bool { return s.going.Err() != nil }

// history runs one history, checks it, and adds it to total.
func (n plan) history(e *party.Env, total *score, seed uint64, lasts time.Duration) {
	inner, tidy := e.Scoped()
	defer tidy()
	s := &simulation{Env: inner, History: &history.History{Seed: seed, Demand: n.demand}, plan: n, lasts: lasts}
	if s.Grace > 0 {
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
		refuse(e, s.History, j)
	case j.Undecided():
		total.undecided = append(total.undecided, seed)
	}
}

// serves waits until a name that nobody has held can be locked: an earlier trial may have had the
// servers crash.
func (s *simulation) serves() {
	p := s.Story().Party("a probe", s.Name(), s.TTL)
	p.Take()
	_ = p.Unlock()
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
		s.Spawn(func() {
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
	party.SleepUntil(ctx, s.lasts)
	for !s.over() && !s.satisfied(time.Duration(s.Now())) {
		party.SleepUntil(ctx, party.Settle)
	}
	cancel()
	wg.Wait()
	if s.Context().Err() != nil {
		s.Failf("the scenario was ended") // its verdict has the reason
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

// makeClients makes many clients of a busy name with short holds, and few of each name with long
// holds, so that a client is often alone there.
func (s *simulation) makeClients(rng *rand.Rand) {
	scenes := []*scene{
		{clients: 5, slow: 0.002},
		{clients: 3, slow: 0.2},
		{clients: 1, slow: 0.8},
		{clients: 2, slow: 0.6},
		{clients: 3, slow: 0.6},
	}
	if rng.IntN(2) == 0 {
		scenes = append(scenes, &scene{clients: 2 + rng.IntN(3), slow: rng.Float64() / 4})
	}
	if s.shares {
		scenes = []*scene{{clients: 5}, {clients: 2}}
	}
	kinds := s.kinds()
	for _, at := range scenes {
		name := s.Name()
		s.names = append(s.names, name)
		for range at.clients {
			id := len(s.players)
			ttl := s.TTL
			switch {
			case s.shares:
				ttl = s.Long
			case rng.IntN(2) == 0:
				ttl *= 2
			}
			p := kinds[id%len(kinds)](name, ttl)
			p.id, p.history, p.planned, p.scene, p.alarm = id, s.History, s.lasts, at, make(chan struct{}, 1)
			p.rng = rand.New(rand.NewPCG(s.Seed, uint64(2+id)))
			s.players = append(s.players, p)
			p.most = manyOfAName
			if s.shares {
				p.most = manyShared
			}
			p.renews = p.renews || !need.Expire.Met(s.Harness)
			s.Clients = append(s.Clients, history.Client{Who: p.Who, Name: name, TTL: p.TTL, Renews: p.renews})
		}
	}
}

// kinds returns the constructors of the kinds of clients in this history. Its faults can hit some
// of them.
func (s *simulation) kinds() []func(name string, ttl time.Duration) *player {
	number := 0
	who := func(kind string) string {
		number++
		return fmt.Sprintf("%s %d", kind, number)
	}
	plain := func(name string, ttl time.Duration) *player {
		return &player{Party: s.Party(who("client"), name, ttl)}
	}
	if s.shares {
		reader := func(name string, ttl time.Duration) *player {
			return &player{Party: s.RWParty(who("client"), name, ttl)}
		}
		return []func(string, time.Duration) *player{reader, reader, reader, reader, plain}
	}
	var special, all []func(string, time.Duration) *player
	for _, z := range s.nemeses {
		switch z.need.Name {
		case need.Links.Name:
			s.Relies(fault.Passes(s.Story()))
			special = append(special, func(name string, ttl time.Duration) *player {
				p, w := fault.Link(s.Env, who("linked client"), name, ttl)
				return &player{Party: p, wire: w}
			})
		case need.Processes.Name:
			special = append(special, func(name string, ttl time.Duration) *player {
				p := fault.StartProcess(s.Env, who("process"), name, ttl)
				return &player{Party: p.Party, process: p}
			})
		}
	}
	common := []func(string, time.Duration) *player{plain}
	if s.Harness.Client != nil && need.Renews.Met(s.Harness) {
		renewing := s.Client(s.TTL, true)
		common = append(common, func(name string, _ time.Duration) *player {
			return &player{Party: renewing(who("renewing Locker"), name), renews: true}
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

// nemesis is a kind of fault that is injected and undone while clients go on.
type nemesis struct {
	need   need.Need
	strike func(s *simulation, rng *rand.Rand) *injection // causes it
	brief  bool                                           // mostly over at once: holds outlast it
	once   bool                                           // at most once in a history
	rows   int                                            // scenarios with this fault alone
}

// injection is one injected fault.
type injection struct {
	history.Fault
	player *player // its target
	undo   func()  // nil: it is over at once
}

func (n nemesis) field() string { return strings.TrimPrefix(n.need.Name, "Faults.") }

// glimpse is how long a brief fault lasts, so that clients see it.
const glimpse = 60 * time.Millisecond

// injectFaults has faults come and go, one at a time, until ctx ends. None is left.
func (s *simulation) injectFaults(ctx context.Context, rng *rand.Rand) {
	party.SleepUntil(ctx, party.UpTo(rng, s.TTL/2))
	for ctx.Err() == nil {
		z := s.nemeses[rng.IntN(len(s.nemeses))]
		if b := z.strike(s, rng); b != nil {
			s.inflict(ctx, rng, z, b)
		}
		lull := s.TTL
		if z.brief {
			lull = 3 * s.TTL // a server that has lost its data may grant nothing for a while
		}
		party.SleepUntil(ctx, party.UpTo(rng, lull))
	}
}

// inflict lets a fault last for a while, and undoes and records it.
func (s *simulation) inflict(ctx context.Context, rng *rand.Rand, z nemesis, b *injection) {
	b.Kind, b.Set = z.field(), s.Now()
	if b.undo != nil {
		lasts := duration(rng, s.TTL)
		if z.brief && rng.IntN(4) > 0 {
			lasts = glimpse
		}
		party.SleepUntil(ctx, lasts)
		b.Undone = s.Now()
		b.undo()
	}
	b.To = s.Now()
	s.RecordFault(b.Fault)
}

// duration returns a random duration of a fault, as often below the TTL as above.
func duration(rng *rand.Rand, ttl time.Duration) time.Duration {
	if rng.IntN(2) == 0 {
		return ttl/10 + party.UpTo(rng, ttl*9/10)
	}
	return ttl + party.UpTo(rng, ttl)
}

func (s *simulation) wanted() (most, least int) {
	switch {
	case len(s.nemeses) == 0:
		return 0, 0
	case s.nemeses[0].once:
		return 1, 1
	}
	return enough, fewest
}

// fewestHolds returns the minimum of holds of a history: one for each client, or half of that if
// faults keep clients from the backend.
func (s *simulation) fewestHolds() int {
	if len(s.nemeses) > 0 {
		return len(s.players) / 2
	}
	return len(s.players)
}

// satisfied reports whether enough faults have hit holders, for a history that has taken so
// long.
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

// extra is how many times as long as planned a history may take.
const extra = 4

var evidenceDir = flag.String("conformance.dir", "", "folder that histories are saved in which "+
	"fail (default: a new one among the temporary files)")

// newDir makes one folder for all histories of this process.
var newDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "conformance-") })

// refuse saves a history that the checker refused, and ends the trial with a report.
func refuse(e *party.Env, h *history.History, j history.Judgement) {
	h.Scenario, h.Again = e.Scenario, e.Again(h.Seed)
	text := h.Report(j)
	dir, err := *evidenceDir, error(nil)
	if dir == "" {
		dir, err = newDir()
	}
	file, timeline := "", ""
	if err == nil {
		file, timeline, err = h.Save(dir, j)
	}
	if err != nil {
		e.Failf("%s\nthe history could not be saved: %w\nthe same clients and faults again: %s", text, err, h.Again)
	}
	say := e.Failf
	if j.InDoubt {
		say = e.Doubtf
	}
	say("%s\nthe history: %s\non a time line: %s\njudge it again: locker check --replay %s\nthe same clients and faults again: %s",
		text, file, timeline, file, h.Again)
}
