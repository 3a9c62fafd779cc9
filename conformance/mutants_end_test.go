package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

func endMutants() []mutant {
	once := func(used func(lost bool) bool) func(*patched, *world) {
		return func(p *patched, _ *world) {
			lock := p.lock
			var spent atomic.Bool
			p.lock = func(ctx context.Context) error {
				if spent.Load() {
					return errors.New("deadlock")
				}
				return lock(ctx)
			}
			after(&p.unlock, func(_ context.Context, err error) error {
				if used(errors.Is(err, locker.ErrLost)) {
					spent.Store(true)
				}
				return err
			})
		}
	}
	return []mutant{
		locks("Unlock of an expired hold says nil", "Unlock of a hold that expired says ErrLost", unlockReturnsNil(locker.ErrLost)),
		locks("Unlock of a taken hold says nil", "Unlock after a take-over says ErrLost", unlockReturnsNil(locker.ErrLost)),
		locks("Unlock says ErrNotHeld of an expired hold", "Unlock of a hold that expired says ErrLost", func(p *patched, _ *world) {
			instead(&p.unlock, locker.ErrLost, locker.ErrNotHeld)
		}),
		locks("a second Unlock says nil", "a second Unlock says ErrNotHeld", unlockReturnsNil(locker.ErrNotHeld)),
		locks("Unlock before Lock says nil", "Unlock without Lock says ErrNotHeld", unlockReturnsNil(locker.ErrNotHeld)),
		locks("Unlock does nothing when ctx has ended", "Unlock ends the hold though its ctx has ended", func(p *patched, _ *world) {
			unlock := p.unlock
			p.unlock = func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return unlock(ctx)
			}
		}),
		locks("good for one hold", "a Locker can be locked again after Unlock", once(func(bool) bool { return true })),
		locks("of no use after a loss", "a Locker can be locked again after a loss and its Unlock", once(func(lost bool) bool { return lost })),
		locks("Lock drops a lost hold", "Lock says ErrLost until a lost hold is unlocked", func(p *patched, _ *world) {
			after(&p.lock, func(ctx context.Context, err error) error {
				if errors.Is(err, locker.ErrLost) {
					_ = p.Mutex.Unlock(ctx)
					return p.Mutex.Lock(ctx)
				}
				return err
			})
		}),
		locks("Extend says ErrNotHeld of a lost hold", "Extend after a take-over says ErrLost", func(p *patched, _ *world) {
			instead(&p.extend, locker.ErrLost, locker.ErrNotHeld)
		}),
		locks("Extend without a hold says nil", "Extend without a hold says ErrNotHeld", func(p *patched, _ *world) {
			instead(&p.extend, locker.ErrNotHeld, nil)
		}),
		locks("Extend revives", "Extend of a hold that expired says ErrLost and does not revive it", revives),
		locks("a goroutine leaked for each Lock", noLeak, func(p *patched, _ *world) {
			before(&p.lock, func() { go func() { select {} }() })
		}),
	}
}

func lossMutants() []mutant {
	return []mutant{
		locks("Lost never fires", "Lost fires no later than Deadline", func(p *patched, _ *world) {
			p.lost = func() <-chan struct{} { return nil }
		}),
		locks("Lost is looked for now and then", "Lost fires no later than Deadline", func(p *patched, _ *world) {
			p.lost = func() <-chan struct{} {
				return later(told(p.RWMutex).Lost(), func() { time.Sleep(p.ttl) })
			}
		}),
		locks("Lost fires one TTL after Lock", "Lost does not fire while the hold is extended", func(p *patched, _ *world) {
			lost := make(chan struct{})
			after(&p.lock, func(_ context.Context, err error) error {
				if err == nil {
					time.AfterFunc(p.ttl, func() { close(lost) })
				}
				return err
			})
			p.lost = func() <-chan struct{} { return lost }
		}),
		locks("Lost is that of the first hold", "Lost tells of the current hold", func(p *patched, _ *world) {
			lost := p.lost
			var first <-chan struct{}
			p.lost = func() <-chan struct{} {
				p.mu.Lock()
				defer p.mu.Unlock()
				if first == nil {
					first = lost()
				}
				return first
			}
		}),
		locks("Deadline allows for no drift", "nobody gets the lock before the holder's Deadline", func(p *patched, _ *world) {
			deadline := p.deadline
			p.deadline = func() time.Time { return deadline().Add(p.ttl * 9 / 10) }
		}),
		locks("Deadline is one TTL late", "Deadline is at most one TTL away, and at least half", func(p *patched, _ *world) {
			deadline := p.deadline
			p.deadline = func() time.Time { return deadline().Add(p.ttl) }
		}),
		locks("Extend moves Deadline back", "Extend moves Deadline forward", func(p *patched, _ *world) {
			deadline := p.deadline
			var extends atomic.Int64
			before(&p.extend, func() { extends.Add(1) })
			p.deadline = func() time.Time { return deadline().Add(-time.Duration(extends.Load()) * p.ttl / 50) }
		}),
		locks("Deadline stays what it was", "Extend moves Deadline forward", func(p *patched, _ *world) {
			deadline := p.deadline
			var first atomic.Pointer[time.Time]
			after(&p.lock, func(_ context.Context, err error) error {
				d := deadline()
				first.Store(&d)
				return err
			})
			p.deadline = func() time.Time { return *first.Load() }
		}),
		locks("a waiting goroutine changes the token", "a goroutine that waits does not disturb the hold of another on the same Locker", func(p *patched, w *world) {
			var calls atomic.Uint64
			before(&p.lock, func() { calls.Add(1) })
			p.token = p.whileHeld(calls.Load)
		}),
	}
}
