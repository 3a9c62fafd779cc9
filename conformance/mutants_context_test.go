package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-locker/locker"
)

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
		locks("a cancelled waiter keeps its place", "a waiter that gives up does not hold up those behind it", zombie),
		locks("many cancelled waiters keep their place", "many Locks cancelled at once leave nothing behind", zombie),
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
		locks("TryLock waits", "TryLock does not wait", func(p *patched, _ *world) { p.tryLock = p.lock }),
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

// keepsLateGrant waits with a context of its own. A grant that arrives when the caller's has just ended is given back by nobody.
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
