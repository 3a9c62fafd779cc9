package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/history"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
)

var readWriteHistoryRows = []row{{
	name:    "a random history of readers and writers is that of one read-write lock",
	promise: "A writer is the only holder. Shares that are held at the same time have the same token. From each writer or group of shares to the next, tokens rise.",
	sources: []string{herlihy, contractOfShares},
	needs:   []need{readsWrites},
	chance:  true,
	lasts:   historiesLast,
	body:    readersWriters,
}}

// rwPlayer is one client of a history of readers and writers. rw is nil if it has a plain lock.
type rwPlayer struct {
	*rwParty
	history *history.History
	id      int
	rng     *rand.Rand
	stiff   bool          // it does not downgrade
	holds   *atomic.Int64 // of all
}

// rwHolds are as many holds as a history has at most: of more the checker may not be sure in time.
const rwHolds = 2000

// readersWriters checks one history, or as many as the flag -conformance.for leaves time for.
func readersWriters(e *env) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	end := time.Now()
	if *forFlag > 0 {
		end = end.Add(historyTime(e.h))
	}
	e.readWriteHistory(seed)
	for time.Now().Before(end) {
		seed++
		e.readWriteHistory(seed)
	}
}

func (e *env) readWriteHistory(seed uint64) {
	e, tidy := e.scoped()
	defer tidy()
	h := &history.History{Seed: seed, Demand: history.Undisturbed}
	players, holds := e.rwPlayers(h), new(atomic.Int64)
	ctx, cancel := context.WithTimeout(e.Context(), contentionTime)
	defer cancel()
	h.Begin()
	var wg sync.WaitGroup
	for _, p := range players {
		p.holds = holds
		wg.Add(1)
		e.spawn(func() {
			defer wg.Done()
			p.play(ctx)
		})
	}
	wg.Wait()
	switch j := h.Check(); {
	case j.Refused():
		e.refuse(h, j)
	case j.Undecided():
		e.doubtf("of a history of %d operations the checker is not sure after %v (-conformance.seed=%d)", j.Operations, history.CheckTime, h.Seed)
	default:
		e.Logf("seed %d: %d holds, %d operations checked", h.Seed, holds.Load(), j.Operations)
	}
	if n := int(holds.Load()); n < 2*len(players) {
		e.doubtf("%d clients had %d holds in %v: too few to show anything", len(players), n, contentionTime)
	}
}

// rwPlayers are clients of two names: a busy one, and one where a client is often alone.
func (e *env) rwPlayers(h *history.History) []*rwPlayer {
	var all []*rwPlayer
	for _, n := range []int{5, 2} {
		name := e.name()
		for i := range n {
			p := &rwPlayer{history: h, id: len(all), rng: rand.New(rand.NewPCG(h.Seed, uint64(len(all))))}
			who := fmt.Sprintf("client %d", p.id+1)
			if i == n-1 && n > 2 {
				p.rwParty = &rwParty{party: e.party(who, name, e.long)}
			} else {
				p.rwParty = e.rwParty(who, name, e.long)
			}
			h.Clients = append(h.Clients, history.Client{Who: who, Name: name, TTL: e.long})
			all = append(all, p)
		}
	}
	return all
}

// play goes on until ctx ends, and leaves nothing held.
func (p *rwPlayer) play(ctx context.Context) {
	for ctx.Err() == nil && p.holds.Load() < rwHolds {
		if p.get(ctx) != nil {
			sleepUntil(ctx, upTo(p.rng, 3*time.Millisecond))
			continue
		}
		p.holds.Add(1)
		p.hold()
		sleepUntil(ctx, upTo(p.rng, 2*time.Millisecond))
	}
}

// get is one Lock, RLock or TryRLock.
func (p *rwPlayer) get(ctx context.Context) error {
	limit := p.ttl
	if p.rng.IntN(10) == 0 {
		limit = upTo(p.rng, 5*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch r := p.rng.Float64(); {
	case p.rw == nil || r < 0.3:
		return p.record(history.OpLock, func() error { return p.lock(ctx) })
	case r < 0.5:
		return p.record(history.OpTryRLock, p.tryRLock)
	default:
		return p.record(history.OpRLock, func() error { return p.rlock(ctx) })
	}
}

// hold is one, from the grant to the Unlock.
func (p *rwPlayer) hold() {
	p.sample()
	linger()
	switch p.rng.IntN(4) {
	case 0:
		_ = p.record(history.OpExtend, p.extend)
	case 1:
		p.weakens()
	case 2:
		time.Sleep(upTo(p.rng, time.Millisecond))
	}
	p.sample()
	_ = p.record(history.OpUnlock, p.unlock)
}

// weakens is a Downgrade, of what is no share or is one. If nobody knows what it did the history shows nothing.
func (p *rwPlayer) weakens() {
	if _, ok := p.l.(downgrader); !ok || p.rw == nil || p.stiff {
		return
	}
	err := p.record(history.OpDowngrade, p.downgrade)
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		p.stiff = true
	case err != nil && errKindOf(err) == history.OtherErr:
		p.env.end(&engine.Doubt{Seen: fmt.Errorf("%s's Downgrade of its hold: %w", p.who, err)})
	}
	p.sample()
}

// record takes down what a call says.
func (p *rwPlayer) record(op string, f func() error) error {
	call := p.history.Now()
	err := f()
	e := history.Event{Client: p.id, Op: op, Call: call, Return: p.history.Now(), Err: errKindOf(err)}
	if e.Err == history.OtherErr {
		e.Text = err.Error()
	}
	p.history.Record(e)
	return err
}

// sample asks for the token.
func (p *rwPlayer) sample() {
	call := p.history.Now()
	token := p.token()
	p.history.Record(history.Event{Client: p.id, Op: history.OpToken, Call: call, Return: p.history.Now(), Token: token})
}
