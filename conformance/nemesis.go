package conformance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/internal/history"
)

var mixed = flag.String("conformance.faults", "",
	"comma-separated fields of Faults that the random history of mixed faults has (default StopServer,Through,Process)")

var (
	stopping = nemesis{need: stops, strike: (*simulation).stopServer, rows: 1}
	killing  = nemesis{need: kills, strike: (*simulation).killServer, brief: true, rows: 1}
	wiping   = nemesis{need: wipes, strike: (*simulation).wipeServer, brief: true, rows: 2}
	failing  = nemesis{need: failsOver, strike: (*simulation).failOver, once: true, rows: 2}
	shifting = nemesis{need: clocks, strike: (*simulation).shiftClock, rows: 1}
	cutting  = nemesis{need: links, strike: (*simulation).cutLink, rows: 1}
	pausing  = nemesis{need: processes, strike: (*simulation).pauseProcess, rows: 1}
	revoking = nemesis{need: revokes, strike: (*simulation).revoke, rows: 1}

	nemeses = []nemesis{stopping, killing, wiping, failing, shifting, cutting, pausing, revoking}
)

// mixture is what the history of mixed faults has, of what the Harness can cause.
func mixture(h Harness) ([]nemesis, error) {
	fields := []string{stopping.field(), cutting.field(), pausing.field()}
	if *mixed != "" {
		fields = strings.Split(*mixed, ",")
	}
	var all []nemesis
	for _, field := range fields {
		i := slices.IndexFunc(nemeses, func(z nemesis) bool { return z.field() == field })
		if i < 0 {
			return nil, fmt.Errorf("-conformance.faults: Faults has no field %q", field)
		}
		if nemeses[i].need.met(h) {
			all = append(all, nemeses[i])
		}
	}
	return all, nil
}

// mixes is met where there is more to mix than one fault.
var mixes = need{"two or more of Faults.StopServer, Faults.Through and Faults.Process", true, func(h Harness) bool {
	all, err := mixture(h)
	return err != nil || len(all) > 1
}, "the Harness has fewer than two of Faults.StopServer, Faults.Through and Faults.Process"}

// outage is a fault of the servers, which nobody hears of meanwhile.
func (s *simulation) outage(rng *rand.Rand, what string, fault func(TB) (undo func())) *injection {
	b := s.victim(rng, what, anybody)
	b.Mutes = history.Everyone
	b.undo = s.harm(fault)
	return b
}

func (s *simulation) stopServer(rng *rand.Rand) *injection {
	return s.outage(rng, "server stopped", s.h.Faults.StopServer)
}

func (s *simulation) killServer(rng *rand.Rand) *injection {
	return s.outage(rng, "server killed", s.h.Faults.KillServer)
}

// wipeServer has the victim look whether it still holds.
func (s *simulation) wipeServer(rng *rand.Rand) *injection {
	b := s.outage(rng, "server killed, data lost", s.h.Faults.WipeServer)
	restart := b.undo
	b.undo = func() {
		restart()
		b.player.warn()
	}
	return b
}

// failOver prepares a failover, so that the next server may miss something, and causes it.
func (s *simulation) failOver(*rand.Rand) *injection {
	if s.failedOver { // what is left is mended at the end
		return nil
	}
	s.failedOver = true
	fail := s.h.Faults.FailOver(s)
	var b *injection
	for prepared := s.Now(); b == nil && !s.over(); {
		b = s.holder(prepared, "failover", anybody)
	}
	if b == nil {
		b = &injection{Fault: history.Fault{What: "failover"}}
	}
	b.From = s.Now()
	fail()
	return b
}

// shiftClock moves the clock by about a TTL, or by far more.
func (s *simulation) shiftClock(rng *rand.Rand) *injection {
	b := s.victim(rng, "", anybody)
	d := s.ttl/2 + upTo(rng, 3*s.ttl)
	if rng.IntN(4) == 0 {
		d = time.Hour
	}
	if rng.IntN(2) == 0 {
		d = -d
	}
	b.undo = s.harm(func(t TB) func() { return s.h.Faults.MoveClock(t, d) })
	b.What = fmt.Sprintf("clock moved by %v", d)
	return b
}

func anybody(*player) bool { return true }

// revoke ends somebody's hold. If that is over by itself in this very moment the harness may find none.
func (s *simulation) revoke(rng *rand.Rand) *injection {
	b := s.victim(rng, "", anybody)
	done, found := make(chan struct{}), false
	s.spawn(func() {
		defer close(done)
		s.h.Faults.Revoke(&refusing{env: s.env}, b.player.name)
		found = true
	})
	<-done
	if !found {
		return nil
	}
	b.player.warn() // it extends what is another's by then
	b.What = "hold revoked of " + b.player.name
	return b
}

// holder waits, for two TTLs at most, for one that is so, has the lock since a time after that given and for a while
// to come, and is not the only one who wants it. It is nil if there is none.
func (s *simulation) holder(after int64, what string, is func(*player) bool) *injection {
	for end := time.Now().Add(2 * s.ttl); time.Now().Before(end) && !s.over(); time.Sleep(time.Millisecond) {
		enough := s.Now() + int64(s.ttl/3)
		for _, p := range s.players {
			if until := p.until.Load(); p.since.Load() > after && until > enough && p.scene.clients > 1 && is(p) {
				return &injection{Fault: history.Fault{What: what, From: s.Now(), Client: p.id, Until: until}, player: p}
			}
		}
	}
	return nil
}

// victim is one that is so: mostly one that holds for long, and always when faults have missed holders for too long.
func (s *simulation) victim(rng *rand.Rand, what string, is func(*player) bool) *injection {
	if rng.IntN(4) > 0 || time.Duration(s.Now()) > s.lasts {
		if b := s.holder(0, what, is); b != nil {
			return b
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.players), func(p *player) bool { return !is(p) })
	p := all[rng.IntN(len(all))]
	return &injection{Fault: history.Fault{What: what, From: s.Now(), Client: p.id}, player: p}
}

// cutLink does something to one client's network.
func (s *simulation) cutLink(rng *rand.Rand) *injection {
	b := s.victim(rng, "", func(p *player) bool { return p.wire != nil })
	w, who := b.player.wire, b.player.who
	b.Mutes, b.undo = history.ItsVictim, w.mend
	switch rng.IntN(6) {
	case 0:
		w.loseReplies()
		b.What = who + ": replies lost"
	case 1:
		d := s.ttl/20 + upTo(rng, s.ttl/2)
		w.delay(d)
		b.What, b.Mutes = fmt.Sprintf("%s: network slow by %v", who, d), history.Nobody
	case 2:
		w.hold()
		b.What = who + ": cut off, then all arrives late"
		b.undo = func() {
			w.release()
			time.Sleep(settle / 5) // it arrives
			w.mend()
		}
	case 3, 4:
		w.reset()
		b.What, b.Mutes, b.undo = who+": connections broken", history.Nobody, nil
	default:
		w.hold()
		b.What = who + ": cut off"
	}
	return b
}

// pauseProcess stops one client.
func (s *simulation) pauseProcess(rng *rand.Rand) *injection {
	b := s.victim(rng, "", func(p *player) bool { return p.process != nil })
	p := b.player.process
	p.halt()
	asked := p.ask()
	b.What, b.Mutes = p.who+": stopped", history.ItsVictim
	b.undo = func() {
		b.Answered = p.answered(asked, 0)
		p.proceed()
	}
	return b
}

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

// historiesLast is how much longer than others a scenario of random histories may take.
func historiesLast(h Harness) time.Duration { return 6*historyTime(h) + history.CheckTime }
