package conformance

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

// manyOfAName are as many holds of one name as a history has at most: more would take the checker long.
const manyOfAName = 2500

// scene is a name, and how its clients behave.
type scene struct {
	clients int
	slow    float64 // how many holds last so long that they have to be extended, or expire
	holds   atomic.Int64
}

// player is one client of a simulation. Whatever it does is drawn by lot, and recorded.
type player struct {
	*party
	history *history.History
	planned time.Duration // how long the history is to last
	scene   *scene
	id      int
	rng     *rand.Rand
	renews  bool
	wire    *wire    // nil: the network is not its own
	process *process // nil: it is in this one

	holds, losses int
	since, until  atomic.Int64  // of a long hold, as it is planned
	alarm         chan struct{} // has it extended soon
}

func (p *player) upTo(d time.Duration) time.Duration { return upTo(p.rng, d) }

// chance is true so often.
func (p *player) chance(share float64) bool { return p.rng.Float64() < share }

// play goes on until ctx ends, and leaves nothing held.
func (p *player) play(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.get(ctx); err != nil {
			p.holdless(err)
			sleepUntil(ctx, p.upTo(10*time.Millisecond))
			continue
		}
		p.holds++
		p.holdless(p.hold(ctx))
		p.rest(ctx)
	}
}

// rest is the time between two holds: next to none, unless the name has had its share.
func (p *player) rest(ctx context.Context) {
	share := 100 + manyOfAName*p.history.Now()/int64(p.planned)
	if p.scene.holds.Add(1) > share || p.chance(0.1) {
		sleepUntil(ctx, p.upTo(40*time.Millisecond))
	}
	linger()
}

// get is one Lock or TryLock.
func (p *player) get(ctx context.Context) error {
	if l, ok := can[power.TryLocker](p.l, stdio.CanTry); ok && p.chance(0.2) {
		return p.record(ctx, p.ttl, history.OpTryLock, l.TryLock)
	}
	switch r := p.rng.Float64(); {
	case r < 0.01:
		return p.record(ctx, 0, history.OpLock, p.l.Lock)
	case r < 0.1:
		return p.record(ctx, p.upTo(10*time.Millisecond), history.OpLock, p.l.Lock)
	default:
		return p.record(ctx, p.ttl/2+p.upTo(2*p.ttl), history.OpLock, p.l.Lock)
	}
}

// hold is one, from the grant to the Unlock, and what that says.
func (p *player) hold(ctx context.Context) (err error) {
	p.sample()
	if p.chance(p.scene.slow) {
		w := p.watch()
		p.slowly(ctx, w.gone)
		p.until.Store(0)
		err = p.giveBack(ctx)
		w.end()
	} else {
		p.shortly()
		p.sample()
		err = p.giveBack(ctx)
	}
	if errKindOf(err) == history.IsLost {
		p.losses++
	}
	return err
}

// shortly holds for a moment.
func (p *player) shortly() {
	switch p.rng.IntN(20) {
	case 0:
		_ = p.renew()
	case 1, 2:
		time.Sleep(p.upTo(time.Millisecond))
	default:
		linger()
	}
}

// slowly holds for a while, with Extend or without, and may not let go at once of what is lost.
func (p *player) slowly(ctx context.Context, gone <-chan struct{}) {
	holding, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-gone:
			cancel()
		case <-holding.Done():
		}
	}()
	switch p.rng.IntN(4) {
	case 0:
		p.pause(holding, p.plan(p.upTo(p.ttl/2)))
	case 1:
		for end := time.Now().Add(p.plan(p.ttl + p.upTo(3*p.ttl/2))); holding.Err() == nil && time.Now().Before(end); {
			p.pause(holding, p.ttl/5+p.upTo(p.ttl/5))
			if errKindOf(p.renew()) == history.IsLost {
				cancel()
			}
		}
	default: // it expires, unless it is renewed
		d := p.plan(p.ttl + p.upTo(history.Coarse+p.ttl/2))
		if !p.renews {
			p.plan(p.ttl)
		}
		p.pause(holding, d)
	}
	if holding.Err() == nil {
		if p.chance(0.5) {
			_ = p.renew()
		}
		return
	}
	if p.chance(0.7) { // and what has befallen it may be over by then
		sleepUntil(ctx, p.upTo(2*p.ttl))
	}
	if p.chance(0.7) { // nothing revives it
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
		sleepUntil(ctx, p.upTo(p.ttl/4))
		_ = p.renew()
		sleepUntil(ctx, d/2)
	}
}

// warn has it extend what it holds for long, soon.
func (p *player) warn() {
	select {
	case p.alarm <- struct{}{}:
	default:
	}
}

// plan lets the faults know of a long hold.
func (p *player) plan(d time.Duration) time.Duration {
	now := p.history.Now()
	p.since.Store(now)
	p.until.Store(now + int64(d))
	return d
}

// renew extends the hold, and may not wait for the answer.
func (p *player) renew() error {
	limit := p.ttl / 2
	if p.chance(0.1) {
		limit = p.upTo(5 * time.Millisecond)
	}
	return p.record(p.env.Context(), limit, history.OpExtend, p.l.Extend)
}

// giveBack unlocks. Where holds are long, and it may take a TTL until the lock is free, it often does not wait for
// the answer.
func (p *player) giveBack(ctx context.Context) error {
	limit := p.ttl
	switch r := p.rng.Float64(); {
	case r < p.scene.slow/10:
		limit = 0
	case r < p.scene.slow/5:
		limit = p.upTo(5 * time.Millisecond)
	}
	return p.record(context.WithoutCancel(ctx), limit, history.OpUnlock, p.l.Unlock)
}

// holdless asks for what is not there, after a Lock or an Unlock that said err.
func (p *player) holdless(err error) {
	if errKindOf(err) == history.OtherErr {
		p.sample()
	}
	switch p.rng.IntN(40) {
	case 0:
		_ = p.giveBack(p.env.Context())
	case 1:
		_ = p.renew()
	case 2, 3, 4, 5:
		p.sample()
	}
}

// record makes a call whose ctx ends after so long, and takes down what it says.
func (p *player) record(ctx context.Context, limit time.Duration, op string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := p.history.Now()
	err := p.call(op, limit+p.env.patience, func() error { return f(ctx) })
	e := history.Event{Client: p.id, Op: op, Call: call, Return: p.history.Now(), Err: errKindOf(err)}
	if e.Err == history.OtherErr {
		e.Text = err.Error()
	}
	p.history.Record(e)
	return err
}

// sample asks for the token.
func (p *player) sample() uint64 {
	call := p.history.Now()
	token := p.token()
	p.history.Record(history.Event{Client: p.id, Op: history.OpToken, Call: call, Return: p.history.Now(), Token: token})
	return token
}

// watch looks at a hold, again and again.
type watch struct {
	gone chan struct{} // closed when the loss has been told
	stop chan struct{}
	wg   sync.WaitGroup
}

func (p *player) watch() *watch {
	w := &watch{gone: make(chan struct{}), stop: make(chan struct{})}
	lost := p.lost()
	pause := min(max(p.ttl/60, 2*time.Millisecond), 20*time.Millisecond)
	w.wg.Go(func() {
		tell := sync.OnceFunc(func() { close(w.gone) })
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-lost:
				now := p.history.Now()
				p.history.Record(history.Event{Client: p.id, Op: history.OpLost, Call: now, Return: now})
				lost = nil
				tell()
			case <-ticker.C:
			}
			if p.sample() == 0 {
				tell()
			}
		}
	})
	return w
}

// end returns when the last look is over.
func (w *watch) end() {
	close(w.stop)
	w.wg.Wait()
}
