package conformance_test

import (
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

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
			return promising(locker.Woken, altered(func(_ conformance.TB, p *patched, _ *world) { polls(p, time.Second) }))
		}},
	}
}
