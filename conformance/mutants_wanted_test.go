package conformance_test

import (
	"context"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

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
			inner, seen := of(p.Mutex, (*locker.Hold).Wanted)(), make(chan struct{})
			go func() {
				time.Sleep(p.ttl)
				<-inner
				close(seen)
			}()
			return seen
		}),
		{"asks who waits until there is no answer", "a holder whose connections break hears that somebody waits", func() conformance.Harness {
			return promising(locker.Ordered, naiveLocks("asks who waits until there is no answer", 0))
		}},
	}
}

// Wanted is of the current hold. It asks the server every 20 ms whether another has been refused
// since the hold began.
func (l *naive) Wanted() <-chan struct{} {
	wanted, h := make(chan struct{}), l.current()
	l.client.others.Go(func() {
		for ; h != nil && !l.gone(h) && l.client.ctx.Err() == nil; pause(l.client.ctx, 20*time.Millisecond) {
			a, err := l.client.ask(context.Background(), question{Op: "wanted", Name: l.name, Owner: h.by()}, l.ttl/4)
			switch {
			case err != nil && l.flaw == "asks who waits until there is no answer":
				return
			case err == nil && a.OK:
				close(wanted)
				return
			}
		}
	})
	return wanted
}
