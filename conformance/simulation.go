package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/history"
)

var seedFlag = flag.Uint64("conformance.seed", 0, "of what clients do in random histories, and of the faults (default: another each time)")

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
	p := s.story().party("a probe", s.name(), s.ttl)
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
			p.id, p.history, p.planned, p.scene, p.alarm = id, s.History, s.lasts, at, make(chan struct{}, 1)
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
		switch z.need.name {
		case links.name:
			s.relies(s.story().passes())
			special = append(special, func(name string, ttl time.Duration) *player {
				p, w := s.link(who("linked client"), name, ttl)
				return &player{party: p, wire: w}
			})
		case processes.name:
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

// nemesis is a kind of fault that is injected and undone while clients go on.
type nemesis struct {
	need   need
	strike func(s *simulation, rng *rand.Rand) *injection // causes it
	brief  bool                                           // it is mostly over at once: holds outlast it
	once   bool                                           // in a history
	rows   int                                            // of which it is the topic
}

// injection is one such fault, or nil if there was none.
type injection struct {
	history.Fault
	player *player // whom it is meant for
	undo   func()  // nil: it is over at once
}

func (n nemesis) field() string { return strings.TrimPrefix(n.need.name, "Faults.") }

// glimpse is how long a brief fault lasts, so that clients see it.
const glimpse = 60 * time.Millisecond

// injectFaults has faults come and go, one at a time, until ctx ends. None is left.
func (s *simulation) injectFaults(ctx context.Context, rng *rand.Rand) {
	sleepUntil(ctx, upTo(rng, s.ttl/2))
	for ctx.Err() == nil {
		z := s.nemeses[rng.IntN(len(s.nemeses))]
		if b := z.strike(s, rng); b != nil {
			s.inflict(ctx, rng, z, b)
		}
		lull := s.ttl
		if z.brief {
			lull = 3 * s.ttl // a server that has lost its data may grant nothing for a while
		}
		sleepUntil(ctx, upTo(rng, lull))
	}
}

// inflict has a fault last for a while, and takes it down.
func (s *simulation) inflict(ctx context.Context, rng *rand.Rand, z nemesis, b *injection) {
	b.Kind, b.Set = z.field(), s.Now()
	if b.undo != nil {
		lasts := duration(rng, s.ttl)
		if z.brief && rng.IntN(4) > 0 {
			lasts = glimpse
		}
		sleepUntil(ctx, lasts)
		b.Undone = s.Now()
		b.undo()
	}
	b.To = s.Now()
	s.RecordFault(b.Fault)
}

// duration of a fault is as often below the TTL as above.
func duration(rng *rand.Rand, ttl time.Duration) time.Duration {
	if rng.IntN(2) == 0 {
		return ttl/10 + upTo(rng, ttl*9/10)
	}
	return ttl + upTo(rng, ttl)
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

// fewestHolds of a history are one for each client, and half of that where faults keep them from
// the backend.
func (s *simulation) fewestHolds() int {
	if len(s.nemeses) > 0 {
		return len(s.players) / 2
	}
	return len(s.players)
}

// satisfied reports whether enough faults have befallen holders, for a history that has taken so
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
