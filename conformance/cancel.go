package conformance

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

var cancelRows = []row{{
	name:    "a cancelled wait leaves nothing behind",
	promise: "What an attempt that failed left behind (key, queue entry, goroutine) is cleaned up.",
	sources: []string{redsyncCancel, zkContext},
	body:    cancelledWaitLeavesNothing,
}, {
	name:    "a waiter that gives up does not hold up those behind it",
	promise: "What an attempt that failed left behind (key, queue entry, goroutine) is cleaned up.",
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
	promise: "What an attempt that failed left behind (key, queue entry, goroutine) is cleaned up.",
	sources: []string{redsyncCancel},
	chance:  true,
	body:    manyCancelled,
}}

// promptly has p take a lock that nobody holds, without waiting for the lapse of something left behind.
func (p *party) promptly(after string) {
	start := time.Now()
	if err := p.lockWithin(p.env.prompt); err != nil {
		p.env.doubtf("%s, the lock is free, but %s's Lock failed after %v: %v", after, p.who, time.Since(start), err)
	}
}

// gone waits until a Lock that was cancelled has returned.
func (e *env) gone(p *party, done <-chan error) {
	select {
	case err := <-done:
		if err == nil {
			e.doubtf("%s's Lock succeeded while another held the lock", p.who)
		}
	case <-time.After(e.patience):
		e.doubtf("%s's Lock had not returned %v after its ctx ended", p.who, e.patience)
	}
}

func cancelledWaitLeavesNothing(e *env) {
	name := e.name()
	a, b, c := e.party("A", name, e.long), e.party("B", name, e.long), e.party("C", name, e.long)
	a.take()
	ctx, cancel := context.WithCancel(e.ctx)
	done := b.start(ctx)
	time.Sleep(settle)
	cancel()
	e.gone(b, done)
	a.release()
	time.Sleep(settle) // what is left of B may want the lock before C does
	c.promptly("B gave up waiting, A has unlocked")
	c.prolong()
	c.release()
}

func gaveUpInTheQueue(e *env) {
	name := e.name()
	a, b, c := e.party("A", name, e.long), e.party("B", name, e.long), e.party("C", name, e.long)
	a.take()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	first := b.start(ctx)
	time.Sleep(settle)
	second := c.start(e.ctx)
	time.Sleep(settle)
	cancel()
	e.gone(b, first)
	a.release()
	select {
	case err := <-second:
		if err != nil {
			e.doubtf("C's Lock: %v", err)
		}
		c.release()
	case <-time.After(e.prompt):
		e.doubtf("B gave up waiting, A has unlocked, but C, who waited behind B, has no lock after %v", e.prompt)
	}
}

// cancelledAnytime cancels at about the moment of the grant: earlier after a success, and later after a failure.
func cancelledAnytime(e *env) {
	name := e.name()
	a, b := e.party("A", name, e.long), e.party("B", name, e.long)
	start := time.Now()
	a.take()
	about := time.Since(start)
	a.release()
	end := time.Now().Add(contentionTime * 3 / 4)
	for i := 0; i < 1000 && time.Now().Before(end); i++ {
		err := a.lockWithin(about/2 + rand.N(about))
		if err == nil {
			a.drop()
			about -= about / 20
			continue
		}
		about += about/20 + time.Microsecond
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
