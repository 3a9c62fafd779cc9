package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/go-locker/locker"
)

// handover is a lock that A holds and B waits for. C is to get it if B gave up.
type handover struct {
	*env
	a, b, c *party
	queued  time.Duration // after which a Lock that was called should be waiting
	about   time.Duration // from A's Unlock to B's grant
	looks   int           // at its ctx, by B's Lock
}

// The moments in which B is cancelled.
const (
	aboutThen = iota // when A's Unlock makes it the holder, or thereabouts
	byLook           // at a look at ctx, as cancelledAnytime does
	atOnce           // just before A's Unlock: what B does about it comes when the lock is its own
	moments
)

// grantedAsItGaveUp cancels B at about the moment in which A's Unlock makes it the holder. C waits
// behind B, or comes afterwards.
func grantedAsItGaveUp(e *env) {
	name := e.name()
	h := &handover{env: e, a: e.party("A", name, e.long), b: e.party("B", name, e.long), c: e.party("C", name, e.long), looks: 1}
	h.first()
	end := time.Now().Add(contentionTime)
	for i := 0; i < 2000 && time.Now().Before(end); i++ {
		h.round(i%moments, i/moments%2 == 1)
	}
}

// first measures a round in which nobody is cancelled.
func (h *handover) first() {
	start := time.Now()
	h.a.take()
	h.queued = 2*time.Since(start) + time.Millisecond
	done := h.b.start(h.Context())
	time.Sleep(h.queued)
	start = time.Now()
	h.a.drop()
	if err := <-done; err != nil {
		h.doubtf("B's Lock: %v", err)
	}
	h.about = time.Since(start)
	h.b.drop()
}

func (h *handover) round(moment int, queue bool) {
	ctx, cancel := context.WithCancel(h.Context())
	if moment == byLook {
		watched := cancelledAtLook(h.Context(), h.looks)
		ctx, cancel = watched, watched.cancel
	}
	defer cancel()
	h.a.take()
	first := h.b.start(ctx)
	time.Sleep(h.queued)
	var second <-chan error
	if queue {
		second = h.pass()
		time.Sleep(h.queued)
	}
	switch moment {
	case aboutThen:
		end := time.Now().Add(h.about/2 + rand.N(max(1, h.about)))
		h.spawn(func() { sleepExactly(end); cancel() })
	case atOnce:
		cancel()
	}
	h.a.drop()
	err := <-first
	h.adapt(moment, err == nil)
	if err == nil {
		h.b.drop()
	}
	switch {
	case queue:
		h.served(second, err)
	case err != nil:
		h.c.promptly("A has unlocked, B's Lock was interrupted (" + err.Error() + ")")
		h.c.drop()
	}
}

// adapt has the next cancellation come earlier after a grant, and later after an error.
func (h *handover) adapt(moment int, granted bool) {
	switch {
	case moment == atOnce:
	case moment == byLook && granted:
		h.looks = 1
	case moment == byLook:
		h.looks++
	case granted:
		h.about -= h.about / 20
	default:
		h.about += h.about/20 + time.Microsecond
	}
}

// pass has C wait for the lock, and give it back at once: where the queue is not fair B may come after C.
func (h *handover) pass() <-chan error {
	done := make(chan error, 1)
	h.spawn(func() {
		err := h.c.lock(h.Context())
		if err == nil {
			err = h.c.unlock()
		}
		done <- err
	})
	return done
}

// served waits for C, which waits too.
func (h *handover) served(done <-chan error, err error) {
	select {
	case cs := <-done:
		if cs != nil && !errors.Is(cs, locker.ErrLost) {
			h.doubtf("C's Lock, or its Unlock: %v", cs)
		}
	case <-time.After(h.prompt):
		h.doubtf("A has unlocked, and B's Lock said %s, but C, who waited behind B, has no lock after %v", says(err), h.prompt)
	}
}

// sleepExactly returns at that time: a timer may be late by a millisecond.
func sleepExactly(end time.Time) {
	time.Sleep(time.Until(end) - 2*time.Millisecond)
	for time.Now().Before(end) {
		runtime.Gosched()
	}
}
