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

// rwPlayer is a player of a history of readers and writers. Its rw is nil if it has a plain lock.
type rwPlayer struct {
	*player
	stiff bool          // it does not downgrade
	holds *atomic.Int64 // of all
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
			who, made := fmt.Sprintf("client %d", len(all)+1), e.rwParty
			if i == n-1 && n > 2 {
				made = e.party
			}
			rng := rand.New(rand.NewPCG(h.Seed, uint64(len(all))))
			all = append(all, &rwPlayer{player: &player{party: made(who, name, e.long), history: h, id: len(all), rng: rng}})
			h.Clients = append(h.Clients, history.Client{Who: who, Name: name, TTL: e.long})
		}
	}
	return all
}

// play goes on until ctx ends, and leaves nothing held.
func (p *rwPlayer) play(ctx context.Context) {
	for ctx.Err() == nil && p.holds.Load() < rwHolds {
		if p.get(ctx) != nil {
			sleepUntil(ctx, p.upTo(3*time.Millisecond))
			continue
		}
		p.holds.Add(1)
		p.hold()
		sleepUntil(ctx, p.upTo(2*time.Millisecond))
	}
}

// get is one Lock, RLock or TryRLock.
func (p *rwPlayer) get(ctx context.Context) error {
	limit := p.ttl
	if p.chance(0.1) {
		limit = p.upTo(5 * time.Millisecond)
	}
	switch r := p.rng.Float64(); {
	case p.rw == nil || r < 0.3:
		return p.record(ctx, limit, history.OpLock, p.l.Lock)
	case r < 0.5:
		return p.record(p.env.Context(), p.env.patience, history.OpTryRLock, p.rw.TryRLock)
	default:
		return p.record(ctx, limit, history.OpRLock, p.rw.RLock)
	}
}

// hold is one, from the grant to the Unlock.
func (p *rwPlayer) hold() {
	ctx := p.env.Context()
	p.sample()
	linger()
	switch p.rng.IntN(4) {
	case 0:
		_ = p.record(ctx, p.ttl, history.OpExtend, p.l.Extend)
	case 1:
		p.weakens(ctx)
	case 2:
		time.Sleep(p.upTo(time.Millisecond))
	}
	p.sample()
	_ = p.record(ctx, p.ttl, history.OpUnlock, p.l.Unlock)
}

// weakens is a Downgrade, of what is no share or is one. If nobody knows what it did the history shows nothing.
func (p *rwPlayer) weakens(ctx context.Context) {
	l, ok := p.l.(downgrader)
	if !ok || p.rw == nil || p.stiff {
		return
	}
	err := p.record(ctx, p.ttl, history.OpDowngrade, l.Downgrade)
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		p.stiff = true
	case err != nil && errKindOf(err) == history.OtherErr:
		p.env.end(&engine.Doubt{Seen: fmt.Errorf("%s's Downgrade of its hold: %w", p.who, err)})
	}
	p.sample()
}
