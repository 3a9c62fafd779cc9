package recipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// flaw is what is wrong with a backend.
type flaw int

const (
	none          flaw = iota
	grantsToAll        // every request is granted
	keeps              // what is released stays held until it expires
	tokensFall         // each is smaller than the one before
	neverFrees         // what was held once stays held
	seesNobody         // Inspect returns no holder
	forcesNothing      // ForceRelease does nothing
	forcesAnybody      // ForceRelease ends whichever hold is there
	forgives           // Release returns nil, whatever has become of the hold
	listsAll           // List has names that were released, too
	neverSilent        // its servers answer although they were stopped
)

// broken is a Driver with one flaw.
type broken struct {
	*memory.Driver
	flaw
}

var granted atomic.Uint64

func (b *broken) Claim(req driver.Request) driver.Claim {
	return &brokenLease{b.Driver.Claim(b.altered(req)), b.flaw, granted.Add(1)}
}

func (b *broken) altered(req driver.Request) driver.Request {
	switch b.flaw {
	case grantsToAll:
		req.Name += fmt.Sprint(rand.Uint64())
	case neverFrees:
		req.TTL += time.Hour
	}
	return req
}

func (b *broken) Inspect(ctx context.Context, name string) (driver.State, error) {
	if b.flaw == seesNobody {
		return driver.State{}, nil
	}
	return b.Driver.Inspect(ctx, name)
}

func (b *broken) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	switch b.flaw {
	case forcesNothing:
		return nil
	case forcesAnybody:
		shown, _ = b.Driver.Inspect(ctx, name)
	}
	return b.Driver.ForceRelease(ctx, name, shown)
}

func (b *broken) List(prefix string) driver.Pager {
	return func(ctx context.Context) (driver.Page, error) {
		page, err := b.Driver.List(prefix)(ctx)
		if b.flaw == listsAll {
			page.Names = append(page.Names, prefix+"/released")
		}
		return page, err
	}
}

type brokenLease struct {
	driver.Claim
	flaw
	place uint64
}

func (l *brokenLease) Token() uint64 {
	if l.flaw == tokensFall {
		return 1<<60 - l.place
	}
	return l.Claim.Token()
}

func (l *brokenLease) Release(ctx context.Context) error {
	if l.flaw == keeps || l.flaw == neverFrees {
		return nil
	}
	if err := l.Claim.Release(ctx); l.flaw != forgives {
		return err
	}
	return nil
}

// examine puts a backend with a flaw through a scenario, with little patience.
func examine(t *testing.T, s scenario, f flaw) error {
	t.Helper()
	h := Harness{TTL: 200 * time.Millisecond, Client: func(t testing.TB, opts ...locker.Option) *locker.Client {
		t.Helper()
		c, err := locker.New(&broken{memory.NewDriver(memory.InSpace(t.Name())), f}, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}}
	if f == neverSilent {
		h.StopServers = func(testing.TB) func() { return func() {} }
	}
	return s.check(&env{t, h, 3 * time.Second, time.Minute})
}

// Each scenario fails with a backend that breaks what its promise rests on.
func TestEveryScenarioCanFail(t *testing.T) {
	flaws := map[string]flaw{
		"election: terms never overlap, and rise":                grantsToAll,
		"election: observers never go back":                      seesNobody,
		"election: a resignation hands over":                     keeps,
		"election: a leader that is not renewed has the reserve": neverFrees,
		"election: a silent server ends the term":                neverSilent,
		"semaphore: at most n hold":                              grantsToAll,
		"semaphore: a slot that is freed is used":                keeps,
		"semaphore: waiters that leave leak no permit":           keeps,
		"semaphore: a permit expires":                            neverFrees,
		"multi: opposite orders end":                             tokensFall,
		"multi: cancelled half-way leaves nothing":               keeps,
		"multi: all or none":                                     grantsToAll,
		"multi: one loss ends all":                               neverFrees,
		"multi: a silent server ends all":                        neverSilent,
		"keyed: one of each name":                                grantsToAll,
		"keyed: no other ends a hold":                            grantsToAll,
		"keyed: Unlock hands over":                               keeps,
		"keyed: a lost lock is told, and taken anew":             tokensFall,
		"keyed: a silent server":                                 neverSilent,
		"operators: a forced release hands over":                 forcesNothing,
		"operators: a forced release is a loss":                  forgives,
		"operators: a forced release ends no other hold":         forcesAnybody,
		"operators: a list has the names that are held":          listsAll,
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			require.NotZero(t, flaws[s.name])
			err := examine(t, s, flaws[s.name])
			require.Error(t, err)
			t.Log(err)
		})
	}
	assert.Len(t, scenarios(), len(flaws))
}

// And none fails with this backend as it is.
func TestNoScenarioFailsWithoutAFlaw(t *testing.T) {
	for _, s := range scenarios() {
		if s.disturbs {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, examine(t, s, none))
		})
	}
}
