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
	alone := func(t conformance.TB, p *patched, _ *world) {
		p.become(open(t, space(), p.ttl, false).RWMutex(p.name()))
	}
	return []mutant{
		{"exclusion within a client alone", "a held lock is not granted to another process", func() conformance.Harness {
			h, of := memory(), altered(alone)
			h.New = of.New
			return h
		}},
		{"exclusion between clients alone", "a held lock is not granted to the same client", func() conformance.Harness { return altered(alone) }},
		locks("reentrant", "a Locker is not reentrant", reentrant),
		locks("no exclusion one time in two hundred", "many processes exclude one another", phantom),
		locks("no exclusion within a client one time in two hundred", "many Lockers of one client exclude one another", phantom),
		locks("no exclusion within a Locker one time in two hundred", "many goroutines on one Locker exclude one another", phantom),
		locks("updates lost one time in two hundred", "a counter guarded by one Locker loses no update", phantom),
		locks("holds overlap when asked meanwhile", "a Locker can be asked while others use it", phantom),
		locks("Lock panics", "the lock passes from holder to holder", func(p *patched, _ *world) {
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
	looksEachTTL := func(p *patched, _ *world) {
		p.lock = func(ctx context.Context) error {
			for {
				err := p.Mutex.TryLock(ctx)
				if !errors.Is(err, locker.ErrHeld) {
					return err
				}
				select {
				case <-time.After(p.ttl):
				case <-ctx.Done():
					return errors.Join(ctx.Err(), context.Cause(ctx), err)
				}
			}
		}
	}
	return []mutant{
		locks("Unlock leaves the lock held", "the lock passes from holder to holder", func(p *patched, _ *world) {
			p.unlock = func(context.Context) error { return nil }
		}),
		locks("waiters look once a TTL", "a waiter wakes when the holder unlocks", looksEachTTL),
		locks("waiters are woken in their client's first two seconds alone", "a waiter wakes when the holder unlocks, also long after it waited before", func(p *patched, w *world) {
			began, woken := time.Now(), p.lock
			looksEachTTL(p, w)
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
