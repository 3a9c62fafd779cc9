package histories

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/internal/history"
)

var mixed = flag.String("conformance.faults", "",
	"comma-separated fields of Faults that the random history of mixed faults has (default StopServer,Through,Process)")

var (
	stopping = nemesis{need: need.Stops, strike: (*simulation).stopServer, rows: 1}
	killing  = nemesis{need: need.Kills, strike: (*simulation).killServer, brief: true, rows: 1}
	wiping   = nemesis{need: need.Wipes, strike: (*simulation).wipeServer, brief: true, rows: 2}
	failing  = nemesis{need: need.FailsOver, strike: (*simulation).failOver, once: true, rows: 2}
	shifting = nemesis{need: need.Clocks, strike: (*simulation).shiftClock, rows: 1}
	cutting  = nemesis{need: need.Links, strike: (*simulation).cutLink, rows: 1}
	pausing  = nemesis{need: need.Processes, strike: (*simulation).pauseProcess, rows: 1}
	revoking = nemesis{need: need.Revokes, strike: (*simulation).revoke, rows: 1}

	nemeses = []nemesis{stopping, killing, wiping, failing, shifting, cutting, pausing, revoking}
)

// mixture returns the faults of the history of mixed faults that the Harness can cause.
func mixture(h harness.Harness) ([]nemesis, error) {
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
		if nemeses[i].need.Met(h) {
			all = append(all, nemeses[i])
		}
	}
	return all, nil
}

// mixes is met if there is more than one fault to mix.
var mixes = need.Need{
	Name:     "two or more of Faults.StopServer, Faults.Through and Faults.Process",
	Disturbs: true,
	Met: func(h harness.Harness) bool {
		all, err := mixture(h)
		return err != nil || len(all) > 1
	},
	Why: "the Harness has fewer than two of Faults.StopServer, Faults.Through and Faults.Process",
}

// outage injects a fault of the servers, from which no client gets a reply meanwhile.
func (s *simulation) outage(rng *rand.Rand, what string, cause func(harness.TB) (undo func())) *injection {
	b := s.victim(rng, what, anybody)
	b.Mutes = history.Everyone
	b.undo = fault.Harm(s.Env, cause)
	return b
}

func (s *simulation) stopServer(rng *rand.Rand) *injection {
	return s.outage(rng, "server stopped", s.Harness.Faults.StopServer)
}

func (s *simulation) killServer(rng *rand.Rand) *injection {
	return s.outage(rng, "server killed", s.Harness.Faults.KillServer)
}

// wipeServer has the victim check afterwards whether it still holds the lock.
func (s *simulation) wipeServer(rng *rand.Rand) *injection {
	b := s.outage(rng, "server killed, data lost", s.Harness.Faults.WipeServer)
	restart := b.undo
	b.undo = func() {
		restart()
		b.player.warn()
	}
	return b
}

// failOver prepares a failover, so that the next server may miss writes, and triggers it once a
// client has taken a long hold.
func (s *simulation) failOver(*rand.Rand) *injection {
	if s.failedOver { // the servers are restored at the end
		return nil
	}
	s.failedOver = true
	fail := s.Harness.Faults.FailOver(s)
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
	d := s.TTL/2 + party.UpTo(rng, 3*s.TTL)
	if rng.IntN(4) == 0 {
		d = time.Hour
	}
	if rng.IntN(2) == 0 {
		d = -d
	}
	b.undo = fault.Harm(s.Env, func(t harness.TB) func() { return s.Harness.Faults.MoveClock(t, d) })
	b.What = fmt.Sprintf("clock moved by %v", d)
	return b
}

func anybody(*player) bool { return true }

// revoke revokes a hold. If the hold ends by itself at the same moment the harness may find none.
func (s *simulation) revoke(rng *rand.Rand) *injection {
	b := s.victim(rng, "", anybody)
	done, found := make(chan struct{}), false
	s.Spawn(func() {
		defer close(done)
		s.Harness.Faults.Revoke(&party.Refusing{Env: s.Env}, b.player.Name)
		found = true
	})
	<-done
	if !found {
		return nil
	}
	b.player.warn() // its Extend must not revive the hold
	b.What = "hold revoked of " + b.player.Name
	return b
}

// holder waits, for two TTLs at most, for a client that meets is, contends with others for its
// lock, and has a hold that began later than after and lasts for a while to come. It returns nil if
// there is none.
func (s *simulation) holder(after int64, what string, is func(*player) bool) *injection {
	for end := time.Now().Add(2 * s.TTL); time.Now().Before(end) && !s.over(); time.Sleep(time.Millisecond) {
		enough := s.Now() + int64(s.TTL/3)
		for _, p := range s.players {
			if until := p.until.Load(); p.since.Load() > after && until > enough && p.scene.clients > 1 && is(p) {
				return &injection{Fault: history.Fault{What: what, From: s.Now(), Client: p.id, Until: until}, player: p}
			}
		}
	}
	return nil
}

// victim chooses a client that meets is as the target of a fault: mostly one with a long hold, and
// always one if the history is overdue, because too few faults have hit holders.
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

// cutLink injects a fault into one client's network.
func (s *simulation) cutLink(rng *rand.Rand) *injection {
	b := s.victim(rng, "", func(p *player) bool { return p.wire != nil })
	w, who := b.player.wire, b.player.Who
	b.Mutes, b.undo = history.ItsVictim, w.Mend
	switch rng.IntN(6) {
	case 0:
		w.LoseReplies()
		b.What = who + ": replies lost"
	case 1:
		d := s.TTL/20 + party.UpTo(rng, s.TTL/2)
		w.Delay(d)
		b.What, b.Mutes = fmt.Sprintf("%s: network slow by %v", who, d), history.Nobody
	case 2:
		w.Hold()
		b.What = who + ": cut off, then all arrives late"
		b.undo = func() {
			w.Release()
			time.Sleep(party.Settle / 5) // it arrives
			w.Mend()
		}
	case 3, 4:
		w.Reset()
		b.What, b.Mutes, b.undo = who+": connections broken", history.Nobody, nil
	default:
		w.Hold()
		b.What = who + ": cut off"
	}
	return b
}

// pauseProcess stops one client.
func (s *simulation) pauseProcess(rng *rand.Rand) *injection {
	b := s.victim(rng, "", func(p *player) bool { return p.process != nil })
	p := b.player.process
	p.Halt()
	asked := p.Ask()
	b.What, b.Mutes = p.Who+": stopped", history.ItsVictim
	b.undo = func() {
		b.Answered = p.Answered(asked, 0)
		p.Proceed()
	}
	return b
}

// historyTime is how long each of the histories of h takes.
func historyTime(h harness.Harness) time.Duration {
	if *scenario.For == 0 {
		return max(party.SomeSeconds, 3*h.TTL)
	}
	rows := 1
	for _, z := range nemeses {
		if z.need.Met(h) {
			rows += z.rows
		}
	}
	for _, n := range []need.Need{mixes, need.ReadsWrites} {
		if n.Met(h) {
			rows++
		}
	}
	return *scenario.For / time.Duration(rows)
}

// historiesLast is how much longer than others a scenario of random histories may take.
func historiesLast(h harness.Harness) time.Duration { return 6*historyTime(h) + history.CheckTime }
