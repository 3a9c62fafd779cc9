package conformance_test

import (
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
			return later(told(p.RWMutex).Wanted(), func() { time.Sleep(p.ttl) })
		}),
	}
}
