package conformance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

func exclusionMutants() []mutant {
	return []mutant{
		locks("reentrant", "a Locker is not reentrant", reentrant),
		locks("no exclusion one time in two hundred", "many processes exclude one another", phantom),
		locks("no exclusion within a client one time in two hundred", "many Lockers of one client exclude one another", phantom),
		locks("no exclusion within a Locker one time in two hundred", "many goroutines on one Locker exclude one another", phantom),
		locks("holds overlap when asked meanwhile", "a Locker can be asked while others use it", phantom),
		locks("Lock panics", "a held lock is not granted to another process", func(p *patched, _ *world) {
			p.lock = func(context.Context) error { panic("nil map") }
		}),
		locks("one Unlock too many says nil", "nothing is held after many goroutines have locked and unlocked", func(p *patched, w *world) {
			after(&p.unlock, func(_ context.Context, err error) error {
				if errors.Is(err, locker.ErrNotHeld) && w.next() == 1 {
					return nil
				}
				return err
			})
		}),
	}
}

func reentrant(p *patched, _ *world) {
	lock := p.lock
	p.lock = func(ctx context.Context) error {
		if p.token() != 0 {
			return nil
		}
		return lock(ctx)
	}
}

// phantom grants a hold that is none one time in two hundred, and takes it back without a word.
func phantom(p *patched, _ *world) {
	lock, unlock := p.lock, p.unlock
	var phantoms atomic.Int64
	p.lock = func(ctx context.Context) error {
		if rand.N(200) == 0 {
			phantoms.Add(1)
			return nil
		}
		return lock(ctx)
	}
	p.unlock = func(ctx context.Context) error {
		for n := phantoms.Load(); n > 0; n = phantoms.Load() {
			if phantoms.CompareAndSwap(n, n-1) {
				return nil
			}
		}
		return unlock(ctx)
	}
}

func waitingMutants() []mutant {
	return []mutant{
		locks("Unlock leaves the lock held", "a held lock is not granted to another process", func(p *patched, _ *world) {
			p.unlock = func(context.Context) error { return nil }
		}),
		locks("waiters are woken in their client's first two seconds alone", "a waiter wakes when the holder unlocks", func(p *patched, _ *world) {
			began, woken := time.Now(), p.lock
			polls(p, func() time.Duration { return p.ttl })
			looks := p.lock
			p.lock = func(ctx context.Context) error {
				if time.Since(began) < 2*time.Second {
					return woken(ctx)
				}
				return looks(ctx)
			}
		}),
		locks("Lock does not wait", "a waiter wakes when the holder unlocks", func(p *patched, _ *world) { p.lock = p.tryLock }),
		locks("one wake-up in fifty is missed", "waiters miss none of many unlocks", func(p *patched, _ *world) {
			lock := p.lock
			p.lock = func(ctx context.Context) error {
				if rand.N(50) == 0 && p.Mutex.TryLock(ctx) != nil {
					time.Sleep(p.ttl)
				}
				return lock(ctx)
			}
		}),
		locks("every fifth waiter is forgotten", "everyone who waits is served", forgetful),
		locks("every fifth waiter on one Locker is forgotten", "everyone who waits on one Locker is served", forgetful),
		locks("Lock waits for ever", "tokens rise from process to process", func(p *patched, _ *world) {
			p.lock = func(context.Context) error { select {} }
		}),
	}
}

// forgetful loses every fifth that comes while another holds.
func forgetful(p *patched, w *world) {
	p.lock = func(ctx context.Context) error {
		if p.Mutex.TryLock(ctx) == nil {
			return nil
		}
		if w.next()%5 == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return p.Mutex.Lock(ctx)
	}
}

func contextMutants() []mutant {
	background := func(p *patched, _ *world) {
		lock := p.lock
		p.lock = func(ctx context.Context) error {
			if ctx.Err() != nil {
				return lock(ctx)
			}
			return lock(context.Background())
		}
	}
	says := func(change func(ctx context.Context, err error) error) func(*patched, *world) {
		return func(p *patched, _ *world) {
			after(&p.lock, func(ctx context.Context, err error) error {
				if err != nil && ctx.Err() != nil {
					return change(ctx, err)
				}
				return err
			})
		}
	}
	return []mutant{
		locks("takes the lock whatever ctx says", "Lock refuses a ctx that has ended", func(p *patched, _ *world) {
			lock := p.lock
			p.lock = func(ctx context.Context) error { return lock(context.WithoutCancel(ctx)) }
		}),
		locks("ctx ignored while waiting", "Lock returns soon after ctx is cancelled while it waits", background),
		locks("deadline ignored while waiting", "Lock returns soon after the deadline of ctx while it waits", background),
		locks("error without the cause", "the error of an interrupted Lock matches ctx.Err and its cause",
			says(func(ctx context.Context, _ error) error { return errors.Join(ctx.Err(), locker.ErrHeld) })),
		locks("error without ctx.Err", "the error of an interrupted Lock matches ctx.Err and its cause",
			says(func(context.Context, error) error { return locker.ErrHeld })),
		locks("error without ErrHeld", "the error of an interrupted wait matches ErrHeld",
			says(func(ctx context.Context, _ error) error { return errors.Join(ctx.Err(), context.Cause(ctx)) })),
		locks("the hold ends with the ctx of its Lock", "a hold outlives the ctx of its Lock", func(p *patched, _ *world) {
			after(&p.lock, func(ctx context.Context, err error) error {
				if err == nil {
					context.AfterFunc(ctx, func() { _ = p.Mutex.Unlock(context.Background()) })
				}
				return err
			})
		}),
		locks("a cancelled Lock goes on in the background", "a cancelled wait leaves nothing behind", zombie),
		locks("granted and then cancelled: not given back", "a Lock cancelled at any moment leaves nothing behind", func(p *patched, _ *world) {
			p.lock = func(ctx context.Context) error {
				h, err := p.Mutex.Acquire(ctx)
				if err == nil && ctx.Err() != nil {
					return errors.Join(ctx.Err(), context.Cause(ctx))
				}
				if err != nil {
					return err
				}
				_ = h.Unlock(context.Background())
				return p.Mutex.Lock(ctx)
			}
		}),
		locks("a grant that arrives as ctx ends is kept", "a grant to a waiter whose ctx ends just then is given back", keepsLateGrant),
		locks("TryLock waits", "TryLock of a held lock says ErrHeld", func(p *patched, _ *world) { p.tryLock = p.lock }),
		locks("TryLock returns an error of its own", "TryLock of a held lock says ErrHeld", func(p *patched, _ *world) {
			instead(&p.tryLock, locker.ErrHeld, errors.New("lock already taken"))
		}),
		locks("TryLock looks and does not take", "TryLock takes a free lock", func(p *patched, _ *world) {
			unlock := p.unlock
			after(&p.tryLock, func(ctx context.Context, err error) error {
				if err == nil {
					_ = unlock(ctx)
				}
				return err
			})
		}),
		locks("TryLock heeds no ctx", "TryLock heeds a ctx that has ended", func(p *patched, _ *world) {
			try := p.tryLock
			p.tryLock = func(ctx context.Context) error { return try(context.WithoutCancel(ctx)) }
		}),
	}
}

// zombie returns when ctx ends, but goes on waiting, and gets the lock for nobody.
func zombie(p *patched, _ *world) {
	p.lock = func(ctx context.Context) error {
		if ctx.Err() != nil {
			return p.Mutex.Lock(ctx)
		}
		if p.Mutex.TryLock(ctx) == nil {
			return nil
		}
		got := make(chan *locker.Hold)
		go func() {
			h, _ := p.Mutex.Acquire(context.Background())
			select {
			case got <- h:
			case <-ctx.Done(): // and never given back
			}
		}()
		select {
		case h := <-got:
			_ = h.Unlock(context.Background())
			return p.Mutex.Lock(ctx)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), context.Cause(ctx), locker.ErrHeld)
		}
	}
}

// keepsLateGrant waits with a context of its own. A grant that arrives when the caller's has just
// ended is given back by nobody.
func keepsLateGrant(p *patched, _ *world) {
	unlock, token := p.unlock, p.token
	var granted atomic.Pointer[locker.Hold]
	p.unlock = func(ctx context.Context) error {
		if h := granted.Swap(nil); h != nil {
			return h.Unlock(ctx)
		}
		return unlock(ctx)
	}
	p.token = func() uint64 {
		if h := granted.Load(); h != nil {
			return h.Token()
		}
		return token()
	}
	p.lock = func(ctx context.Context) error {
		if err := p.Mutex.TryLock(ctx); !errors.Is(err, locker.ErrHeld) {
			return err
		}
		waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		got := make(chan *locker.Hold)
		go func() {
			h, _ := p.Mutex.Acquire(waiting)
			got <- h
		}()
		select {
		case h := <-got:
			granted.Store(h)
			return nil
		case <-ctx.Done():
			cancel()
			<-got // nil, unless the grant was first
			return errors.Join(ctx.Err(), context.Cause(ctx), locker.ErrHeld)
		}
	}
}

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
		locks("an Unlock before Lock says nil", "a second Unlock says ErrNotHeld", func(p *patched, _ *world) {
			unlock, locked := p.unlock, false
			before(&p.lock, func() { locked = true })
			p.unlock = func(ctx context.Context) error {
				if !locked {
					return nil
				}
				return unlock(ctx)
			}
		}),
		locks("Unlock does nothing when ctx has ended", "Unlock ends the hold though its ctx has ended", func(p *patched, _ *world) {
			unlock := p.unlock
			p.unlock = func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return unlock(ctx)
			}
		}),
		locks("good for one hold", "a second Unlock says ErrNotHeld", once(func(bool) bool { return true })),
		locks("of no use after a loss", "a Locker can be locked again after a loss and its Unlock", once(func(lost bool) bool { return lost })),
		locks("Lock drops a lost hold", "Lock says ErrLost until a lost hold is unlocked", func(p *patched, _ *world) {
			p.anew(&p.lock, p.Mutex.Lock)
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
		locks("Lost is that of the first hold", "Lost fires no later than Deadline", func(p *patched, _ *world) {
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

// promising has the harness promise what its Lockers do not keep.
func promising(g locker.Guarantee, h conformance.Harness) conformance.Harness {
	h.Promises = locker.Guarantees{g: {Level: locker.LevelYes}}
	return h
}

func promiseMutants() []mutant {
	return []mutant{
		{"an order is promised, and luck decides", "waiters are served in the order in which they came", func() conformance.Harness {
			return promising(locker.Ordered, altered(unfair))
		}},
		{"polls, and calls it woken", "a waiter has the lock within a few round trips of the Unlock", func() conformance.Harness {
			return promising(locker.Woken, altered(func(_ conformance.TB, p *patched, _ *world) {
				polls(p, func() time.Duration { return rand.N(time.Second) })
			}))
		}},
	}
}

func wantedMutants() []mutant {
	const hears = "a holder that asks is told that somebody waits"
	wants := func(flaw string, wanted func(p *patched) <-chan struct{}) mutant {
		return mutant{flaw, hears, func() conformance.Harness {
			return promising(locker.Ordered, altered(func(_ conformance.TB, p *patched, _ *world) {
				p.wanted = func() <-chan struct{} { return wanted(p) }
			}))
		}}
	}
	return []mutant{
		wants("Wanted never fires", func(*patched) <-chan struct{} { return nil }),
		wants("Wanted fires at once", func(*patched) <-chan struct{} {
			fired := make(chan struct{})
			close(fired)
			return fired
		}),
		wants("Wanted fires when the hold is over", (*patched).Lost),
		wants("Wanted is looked for once a TTL", func(p *patched) <-chan struct{} {
			return later(told(p.RWMutex).Wanted(), func() { time.Sleep(p.ttl) })
		}),
	}
}
