package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

// The maximum of holds of one name in a history: more would take the checker too long.
const (
	manyOfAName = 2500
	manyShared  = 1000
)

// scene is a name, and the behaviour of its clients.
type scene struct {
	clients int
	slow    float64 // share of holds so long that they are extended, or expire
	holds   atomic.Int64
}

// player is one client of a simulation. Its calls are random, and recorded.
type player struct {
	*party.Party
	history *history.History
	planned time.Duration // planned length of the history
	scene   *scene
	most    int64 // limit on the holds of its name
	id      int
	rng     *rand.Rand
	renews  bool
	stiff   bool           // the Locker does not downgrade
	wire    *fault.Wire    // nil: it has no network of its own
	process *fault.Process // nil: it runs in this process

	holds, losses int
	since, until  atomic.Int64  // the planned interval of a long hold
	alarm         chan struct{} // makes it extend its hold soon
}

func (p *player) upTo(d time.Duration) time.Duration { return party.UpTo(p.rng, d) }

// chance returns true with the probability share.
func (p *player) chance(share float64) bool { return p.rng.Float64() < share }

// play locks and unlocks until ctx ends, and leaves no hold.
func (p *player) play(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.get(ctx); err != nil {
			p.holdless(err)
			party.SleepUntil(ctx, p.upTo(10*time.Millisecond))
			continue
		}
		p.holds++
		p.holdless(p.hold(ctx))
		p.rest(ctx)
	}
}

// rest pauses between two holds: next to not at all, unless the name has had its share of holds.
func (p *player) rest(ctx context.Context) {
	share := 100 + p.most*p.history.Now()/int64(p.planned)
	if p.scene.holds.Add(1) > share || p.chance(0.1) {
		party.SleepUntil(ctx, p.upTo(40*time.Millisecond))
	}
	contention.Linger()
}

// get makes one Lock, TryLock, RLock or TryRLock.
func (p *player) get(ctx context.Context) error {
	of, lock, try := p.Locker, history.OpLock, history.OpTryLock
	if p.RW != nil && p.chance(0.7) {
		of, lock, try = power.Sharing{Sharer: p.RW}, history.OpRLock, history.OpTryRLock
	}
	if l, ok := party.Can[power.TryLocker](of, stdio.CanTry); ok && p.chance(0.2) {
		return p.record(ctx, p.TTL, try, l.TryLock)
	}
	limit := p.TTL/2 + p.upTo(2*p.TTL)
	switch r := p.rng.Float64(); {
	case r < 0.01:
		limit = 0
	case r < 0.1:
		limit = p.upTo(10 * time.Millisecond)
	}
	return p.record(ctx, limit, lock, of.Lock)
}

// hold goes through one hold, from the grant to the Unlock, whose error it returns.
func (p *player) hold(ctx context.Context) (err error) {
	p.sample()
	if p.chance(p.scene.slow) {
		holding, lose := context.WithCancel(ctx)
		stop := p.watch(lose)
		p.slowly(ctx, holding, lose)
		p.until.Store(0)
		err = p.giveBack(ctx)
		stop()
	} else {
		p.shortly()
		p.sample()
		err = p.giveBack(ctx)
	}
	if party.ErrKindOf(err) == history.IsLost {
		p.losses++
	}
	return err
}

// shortly holds for a moment. Readers and writers hold for longer, so that others wait.
func (p *player) shortly() {
	kinds := 20
	if p.RW != nil {
		kinds = 4
		if p.chance(0.4) {
			p.weaken()
		}
	}
	switch p.rng.IntN(kinds) {
	case 0:
		_ = p.renew()
	case 1, 2:
		time.Sleep(p.upTo(time.Millisecond))
	default:
		contention.Linger()
	}
}

// weaken calls Downgrade, of an exclusive hold or of a share. If its outcome is unknown the trial
// is in doubt.
func (p *player) weaken() {
	l, ok := p.Locker.(party.Downgrader)
	if !ok || p.stiff {
		return
	}
	err := p.record(p.Env.Context(), p.TTL, history.OpDowngrade, l.Downgrade)
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		p.stiff = true
	case party.ErrKindOf(err) == history.OtherErr:
		p.Env.Decide(&engine.Doubt{Seen: fmt.Errorf("%s's Downgrade of its hold: %w", p.Who, err)})
	}
}

// slowly holds for a while, with or without Extend, and may not unlock a lost hold at once. holding
// ends with the hold, or by lose.
func (p *player) slowly(ctx, holding context.Context, lose func()) {
	switch p.rng.IntN(4) {
	case 0:
		p.pause(holding, p.plan(p.upTo(p.TTL/2)))
	case 1:
		for end := time.Now().Add(p.plan(p.TTL + p.upTo(3*p.TTL/2))); holding.Err() == nil && time.Now().Before(end); {
			p.pause(holding, p.TTL/5+p.upTo(p.TTL/5))
			if party.ErrKindOf(p.renew()) == history.IsLost {
				lose()
			}
		}
	default: // it expires, unless it is renewed
		d := p.plan(p.TTL + p.upTo(history.Coarse+p.TTL/2))
		if !p.renews {
			p.plan(p.TTL)
		}
		p.pause(holding, d)
	}
	if holding.Err() == nil {
		if p.chance(0.5) {
			_ = p.renew()
		}
		return
	}
	if p.chance(0.7) { // the fault may be over by then
		party.SleepUntil(ctx, p.upTo(2*p.TTL))
	}
	if p.chance(0.7) { // must not revive it
		_ = p.renew()
	}
}

// pause is a sleep that ctx ends, and that is interrupted by an Extend soon after an alarm.
func (p *player) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-p.alarm:
		party.SleepUntil(ctx, p.upTo(p.TTL/4))
		_ = p.renew()
		party.SleepUntil(ctx, d/2)
	}
}

// warn has the player soon extend its long hold.
func (p *player) warn() {
	select {
	case p.alarm <- struct{}{}:
	default:
	}
}

// plan publishes the interval of a long hold to the faults.
func (p *player) plan(d time.Duration) time.Duration {
	now := p.history.Now()
	p.since.Store(now)
	p.until.Store(now + int64(d))
	return d
}

// renew extends the hold, and may not wait for the reply.
func (p *player) renew() error {
	limit := p.TTL / 2
	if p.chance(0.1) {
		limit = p.upTo(5 * time.Millisecond)
	}
	return p.record(p.Env.Context(), limit, history.OpExtend, p.Locker.Extend)
}

// giveBack unlocks. In a scene of long holds it often does not wait for the reply, after which the
// lock may be free only when the TTL is over.
func (p *player) giveBack(ctx context.Context) error {
	limit := p.TTL
	switch r := p.rng.Float64(); {
	case r < p.scene.slow/10:
		limit = 0
	case r < p.scene.slow/5:
		limit = p.upTo(5 * time.Millisecond)
	}
	return p.record(context.WithoutCancel(ctx), limit, history.OpUnlock, p.Locker.Unlock)
}

// holdless sometimes calls Unlock, Extend or FencingToken without a hold, after a Lock or an Unlock
// that returned err.
func (p *player) holdless(err error) {
	if party.ErrKindOf(err) == history.OtherErr {
		p.sample()
	}
	switch p.rng.IntN(40) {
	case 0:
		_ = p.giveBack(p.Env.Context())
	case 1:
		_ = p.renew()
	case 2, 3, 4, 5:
		p.sample()
	}
}

// record makes a call whose ctx ends after limit, and records its result.
func (p *player) record(ctx context.Context, limit time.Duration, op string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := p.history.Now()
	err := p.Call(op, limit+p.Env.Patience, func() error { return f(ctx) })
	e := history.Event{Client: p.id, Op: op, Call: call, Return: p.history.Now(), Err: party.ErrKindOf(err)}
	if e.Err == history.OtherErr {
		e.Text = err.Error()
	}
	p.history.Record(e)
	return err
}

// sample reads and records the token.
func (p *player) sample() uint64 {
	call := p.history.Now()
	token := p.Token()
	p.history.Record(history.Event{Client: p.id, Op: history.OpToken, Call: call, Return: p.history.Now(), Token: token})
	return token
}

// watch polls the state of a hold, and calls lose when the Locker reports its loss, until stop
// returns.
func (p *player) watch(lose func()) (stop func()) {
	over := make(chan struct{})
	lost := p.Lost()
	pause := min(max(p.TTL/60, 2*time.Millisecond), 20*time.Millisecond)
	var polling sync.WaitGroup
	polling.Go(func() {
		defer lose()
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-lost:
				now := p.history.Now()
				p.history.Record(history.Event{Client: p.id, Op: history.OpLost, Call: now, Return: now})
				lost = nil
				lose()
			case <-ticker.C:
			}
			if p.sample() == 0 {
				lose()
			}
		}
	})
	return func() {
		close(over)
		polling.Wait()
	}
}
