package conformance

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

var cancelRows = []row{{
	name:    "a cancelled wait leaves nothing behind",
	promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up.",
	sources: []string{redsyncCancel, zkContext},
	body:    cancelledWaitLeavesNothing,
}, {
	name:    "a waiter that gives up does not hold up those behind it",
	promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up.",
	sources: []string{zkRecipe, zkContext},
	body:    gaveUpInTheQueue,
}, {
	name:    "a Lock cancelled at any moment leaves nothing behind",
	promise: "On any error of Lock the caller holds nothing, whenever ctx ended.",
	sources: []string{redsyncCancel},
	chance:  true,
	body:    cancelledAnytime,
}, {
	name:    "many Locks cancelled at once leave nothing behind",
	promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up.",
	sources: []string{redsyncCancel},
	chance:  true,
	body:    manyCancelled,
}, {
	name:    "a grant to a waiter whose ctx ends just then is given back",
	promise: "On any error of Lock the caller holds nothing, also if the grant arrives as ctx ends.",
	sources: []string{semaphore, redsyncCancel},
	chance:  true,
	body:    grantedAsItGaveUp,
}}

func cancelledWaitLeavesNothing(e *env) {
	name := e.name()
	a, b, c := e.party("A", name, e.long), e.party("B", name, e.long), e.party("C", name, e.long)
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	done := b.start(ctx)
	time.Sleep(e.settle())
	cancel()
	e.gone(b, done)
	a.release()
	time.Sleep(e.settle()) // what is left of B may want the lock before C does
	c.promptly("B gave up waiting, A has unlocked")
	c.prolong()
	c.release()
}

func gaveUpInTheQueue(e *env) {
	name := e.name()
	a, b, c := e.party("A", name, e.long), e.party("B", name, e.long), e.party("C", name, e.long)
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	first := b.start(ctx)
	time.Sleep(e.settle())
	second := c.start(e.Context())
	time.Sleep(e.settle())
	cancel()
	e.gone(b, first)
	a.release()
	c.granted(second, e.prompt, "B, who waited before it, gave up, and A has unlocked")
	c.release()
}

// cancelledAnytime cancels at about the moment of the grant. In turns, that is a time, earlier after a success and later
// after a failure, and a look at ctx, the first after a success and the next after a failure: what a Locker does in a
// microsecond no timer hits.
func cancelledAnytime(e *env) {
	a, b := e.rivals(e.long, e.long)
	start := time.Now()
	a.take()
	about := time.Since(start)
	a.release()
	byTime := func() error {
		err := a.lockWithin(about/2 + rand.N(about))
		if err == nil {
			about -= about / 20
		} else {
			about += about/20 + time.Microsecond
		}
		return err
	}
	looks := 1
	byLook := func() error {
		ctx := cancelledAtLook(e.Context(), looks)
		defer ctx.cancel()
		err := a.lock(ctx)
		if err == nil {
			looks = 1
		} else {
			looks++
		}
		return err
	}
	end := time.Now().Add(contentionTime * 3 / 4)
	for i := 0; i < 1000 && time.Now().Before(end); i++ {
		lock := byTime
		if i%2 == 1 {
			lock = byLook
		}
		err := lock()
		if err == nil {
			a.drop()
			continue
		}
		b.promptly("A's Lock was interrupted (" + err.Error() + ")")
		b.drop()
	}
}

func manyCancelled(e *env) {
	name := e.name()
	waiters := e.processes(name)
	last := e.party("Z", name, e.long)
	end := time.Now().Add(contentionTime)
	for i := 0; i < 20 && time.Now().Before(end); i++ {
		var wg sync.WaitGroup
		for _, p := range waiters {
			wg.Go(func() {
				if p.lockWithin(rand.N(20*time.Millisecond)) == nil {
					time.Sleep(rand.N(3 * time.Millisecond))
					_ = p.unlock() // that it can be lost is not the matter here
				}
			})
		}
		wg.Wait()
		last.promptly("all Locks were unlocked or interrupted")
		last.drop()
	}
}
