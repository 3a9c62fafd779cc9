package conformance

import (
	"time"

	"github.com/go-locker/locker/conformance/internal/power"
)

var wantedRows = []row{{
	name:    "a holder that asks is told that somebody waits",
	promise: "Wanted fires when somebody waits for the lock, and before the waiter has it. It does not fire while nobody waits.",
	sources: []string{contract},
	queued:  true,
	body:    hearsOfWaiter,
}, {
	name:    "a holder whose connections break hears that somebody waits",
	promise: "Wanted fires when somebody waits for the lock, also if the connections break just then.",
	sources: []string{contract},
	needs:   []need{links},
	queued:  true,
	body:    hearsOfWaiterWhenBack,
}}

// wanted skips the scenario if the Locker has no Wanted.
func (p *party) wanted() <-chan struct{} {
	l, ok := power.Of[power.Wanter](p.l)
	if !ok {
		p.env.skip("the Locker has no Wanted")
	}
	return l.Wanted()
}

func hearsOfWaiter(e *env) {
	a, b := e.rivals(e.long, e.long)
	a.take()
	wanted := a.wanted()
	select {
	case <-wanted:
		e.failf("A's Wanted has fired, and nobody has called Lock but A")
	case <-time.After(3 * e.settle()):
	}
	done := b.start(e.Context())
	select {
	case <-wanted:
	case err := <-done:
		e.early(a, b, err)
	case <-time.After(e.prompt):
		e.doubtf("%v after B's Lock was called A's Wanted has not fired; the TTL is %v", e.prompt, e.long)
	}
	a.release()
	b.granted(done, e.prompt, "A has unlocked, because it was wanted")
	select {
	case <-b.wanted():
		e.doubtf("B's Wanted has fired, and nobody waits any more")
	case <-time.After(e.settle()):
	}
	b.release()
}

// hearsOfWaiterWhenBack has A be told what does not arrive.
func hearsOfWaiterWhenBack(e *env) {
	a, w := e.linked("A", e.name(), e.lifetime(2*time.Second))
	b := e.party("B", a.name, e.long)
	a.take()
	wanted := a.wanted()
	time.Sleep(3 * e.settle()) // what it has asked for stands
	w.hold()
	done := b.start(e.Context())
	time.Sleep(2 * e.settle()) // it waits
	w.mend()
	for end := time.Now().Add(a.ttl + e.prompt); ; {
		select {
		case <-wanted:
			a.drop()
			b.granted(done, e.prompt, "A has unlocked, because it was wanted")
			b.release()
			return
		case err := <-done:
			e.early(a, b, err)
		case <-time.After(a.ttl / 8):
			_ = a.extend() // which is late if the hold is lost, as B will say
		}
		if time.Now().After(end) {
			e.doubtf("B waits, and %v after A's connections broke A's Wanted has not fired; its TTL is %v", a.ttl+e.prompt, a.ttl)
		}
	}
}
