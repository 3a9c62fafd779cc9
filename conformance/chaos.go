package conformance

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

var mixed = flag.String("conformance.faults", "",
	"comma-separated fields of Faults that the random history of mixed faults has (default StopServer,Through,Process)")

// hazard is a kind of fault that comes and goes while clients go on.
type hazard struct {
	need need
	// strike causes it. Where undo is nil it is over at once.
	strike func(s *storm, rng *rand.Rand) (what string, undo func())
	brief  bool // it is mostly over at once: holds outlast it
	once   bool // in a history
	rows   int  // of which it is the topic
}

func (h hazard) field() string { return strings.TrimPrefix(h.need.name, "Faults.") }

var (
	stopping = hazard{need: stops, strike: (*storm).stopServer, rows: 1}
	killing  = hazard{need: kills, strike: (*storm).killServer, brief: true, rows: 1}
	wiping   = hazard{need: wipes, strike: (*storm).wipeServer, brief: true, rows: 2}
	failing  = hazard{need: failsOver, strike: (*storm).failOver, once: true, rows: 2}
	shifting = hazard{need: clocks, strike: (*storm).shiftClock, rows: 1}
	cutting  = hazard{need: links, strike: (*storm).cutLink, rows: 1}
	pausing  = hazard{need: processes, strike: (*storm).pauseProcess, rows: 1}
	revoking = hazard{need: revokes, strike: (*storm).revoke, rows: 1}

	hazards = []hazard{stopping, killing, wiping, failing, shifting, cutting, pausing, revoking}
)

// mixture is what the history of mixed faults has, of what the Harness can cause.
func mixture(h Harness) ([]hazard, error) {
	fields := []string{stopping.field(), cutting.field(), pausing.field()}
	if *mixed != "" {
		fields = strings.Split(*mixed, ",")
	}
	var all []hazard
	for _, field := range fields {
		i := slices.IndexFunc(hazards, func(z hazard) bool { return z.field() == field })
		if i < 0 {
			return nil, fmt.Errorf("-conformance.faults: Faults has no field %q", field)
		}
		if hazards[i].need.met(h) {
			all = append(all, hazards[i])
		}
	}
	return all, nil
}

// mixes is met where there is more to mix than one fault.
var mixes = need{"two of Faults.StopServer, Through and Process", true, func(h Harness) bool {
	all, err := mixture(h)
	return err != nil || len(all) > 1
}}

func (s *storm) stopServer(rng *rand.Rand) (string, func()) {
	s.victim(rng, anybody)
	return "server stopped", s.harm(s.h.Faults.StopServer)
}

func (s *storm) killServer(rng *rand.Rand) (string, func()) {
	s.victim(rng, anybody)
	return "server killed", s.harm(s.h.Faults.KillServer)
}

func (s *storm) wipeServer(rng *rand.Rand) (string, func()) {
	s.victim(rng, anybody)
	return "server killed, data lost", s.harm(s.h.Faults.WipeServer)
}

// failOver prepares a failover, that whoever takes over may miss something, and has it.
func (s *storm) failOver(*rand.Rand) (string, func()) {
	if s.failedOver { // what is left is mended at the end
		return "", nil
	}
	s.failedOver = true
	fail := s.h.Faults.FailOver(s)
	for prepared := s.now(); s.holder(prepared, anybody) == nil && !s.over(); {
	}
	s.struck = s.now()
	fail()
	return "failover", nil
}

// shiftClock moves the clock by about a TTL, or by far more.
func (s *storm) shiftClock(rng *rand.Rand) (string, func()) {
	s.victim(rng, anybody)
	d := s.ttl/2 + upTo(rng, 3*s.ttl)
	if rng.IntN(4) == 0 {
		d = time.Hour
	}
	if rng.IntN(2) == 0 {
		d = -d
	}
	back := s.harm(func(t TB) func() { return s.h.Faults.MoveClock(t, d) })
	return fmt.Sprintf("clock moved by %v", d), back
}

func anybody(*player) bool { return true }

// revoke ends somebody's hold. If that is over by itself in this very moment the harness may find none.
func (s *storm) revoke(rng *rand.Rand) (string, func()) {
	p := s.victim(rng, anybody)
	done, found := make(chan struct{}), false
	s.spawn(func() {
		defer close(done)
		s.h.Faults.Revoke(refusing{s.scope}, p.name)
		found = true
	})
	<-done
	if !found {
		return "", nil
	}
	select {
	case p.alarm <- struct{}{}: // it extends what is another's by then
	default:
	}
	return "hold revoked of " + p.name, nil
}

// holder waits, for two TTLs at most, for one that is so, has the lock since a time after that given and for a while
// to come, and is not the only one who wants it. It is nil if there is none.
func (s *storm) holder(after int64, is func(*player) bool) *player {
	for end := time.Now().Add(2 * s.ttl); time.Now().Before(end) && !s.over(); time.Sleep(time.Millisecond) {
		enough := s.now() + int64(s.ttl/3)
		for _, p := range s.players {
			if p.since.Load() > after && p.until.Load() > enough && p.scene.clients > 1 && is(p) {
				s.hits.Add(1)
				return p
			}
		}
	}
	return nil
}

// victim is one that is so: mostly one that holds for long.
func (s *storm) victim(rng *rand.Rand, is func(*player) bool) *player {
	defer func() { s.struck = s.now() }()
	if rng.IntN(4) > 0 {
		if p := s.holder(0, is); p != nil {
			return p
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.players), func(p *player) bool { return !is(p) })
	return all[rng.IntN(len(all))]
}

// cutLink does something to one client's network.
func (s *storm) cutLink(rng *rand.Rand) (string, func()) {
	p := s.victim(rng, func(p *player) bool { return p.wire != nil })
	w := p.wire
	switch rng.IntN(6) {
	case 0:
		w.loseReplies()
		return p.who + ": replies lost", w.mend
	case 1:
		d := s.ttl/20 + upTo(rng, s.ttl/2)
		w.delay(d)
		return fmt.Sprintf("%s: network slow by %v", p.who, d), w.mend
	case 2:
		w.hold()
		return p.who + ": cut off, then all arrives late", func() {
			w.release()
			time.Sleep(settle / 5) // it arrives
			w.mend()
		}
	case 3, 4:
		w.reset()
		return p.who + ": connections broken", nil
	default:
		w.hold()
		return p.who + ": cut off", w.mend
	}
}

// pauseProcess stops one client.
func (s *storm) pauseProcess(rng *rand.Rand) (string, func()) {
	p := s.victim(rng, func(p *player) bool { return p.process != nil }).process
	p.stop()
	return p.who + ": stopped", p.resume
}

// rage has faults come and go, one at a time, until ctx ends. None is left.
func (s *storm) rage(ctx context.Context, rng *rand.Rand) {
	sleepUntil(ctx, upTo(rng, s.ttl/2))
	for ctx.Err() == nil {
		z := s.hazards[rng.IntN(len(s.hazards))]
		what, undo := z.strike(s, rng)
		w := weather{Kind: z.field(), What: what, From: s.struck}
		if undo != nil {
			if !z.brief || rng.IntN(4) == 0 {
				sleepUntil(ctx, duration(rng, s.ttl))
			}
			undo()
		}
		if w.To = s.now(); what != "" {
			s.befell(w)
		}
		lull := s.ttl
		if z.brief {
			lull = 3 * s.ttl // a server that has lost its data may grant nothing for a while
		}
		sleepUntil(ctx, upTo(rng, lull))
	}
}

// duration of a fault is as often below the TTL as above.
func duration(rng *rand.Rand, ttl time.Duration) time.Duration {
	if rng.IntN(2) == 0 {
		return ttl/10 + upTo(rng, ttl*9/10)
	}
	return ttl + upTo(rng, ttl)
}
