package conformance_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

const oneHistory = "a random history is that of one lock"

// evidenceOf has the histories of mutants go when the test does.
func evidenceOf(t *testing.T) {
	t.Helper()
	dir := flag.Lookup("conformance.dir")
	before := dir.Value.String()
	require.NoError(t, dir.Value.Set(t.TempDir()))
	t.Cleanup(func() { _ = dir.Value.Set(before) })
}

// manyClients reports whether a task is one of many clients, of which a machine does only so many at a time: where all is slow a
// fault finds nobody who would outlast it.
func manyClients(t task) bool {
	return strings.Contains(t.scenario.Name, "random history") || strings.Contains(t.scenario.Name, "guarded by tokens")
}

func historyMutants() []mutant {
	return []mutant{
		locks("no exclusion one time in two hundred, in a history", oneHistory, phantom),
		locks("Extend revives, in a history", oneHistory, revives),
		locks("Unlock after the loss says nil, in a history", oneHistory, unlockReturnsNil(locker.ErrLost)),
		locks("Unlock of nothing says nil, in a history", oneHistory, unlockReturnsNil(locker.ErrNotHeld)),
		locks("a hold that is believed for a tenth longer than it lasts", oneHistory, overdue(1.1)),
		locks("a hold that is believed for ever", oneHistory, overdue(1000)),
	}
}

func counterMutants() []mutant {
	const late, counter = "a late write with the token of a lost hold is refused", "a counter guarded by tokens loses no update"
	constant := func(p *patched, _ *world) { p.token = func() uint64 { return 42 } }
	return []mutant{
		locks("a constant token, and a late write", late, constant),
		locks("a constant token, and a counter", counter, constant),
		locks("a token minted when it is asked for", late, func(p *patched, w *world) {
			p.token = func() uint64 { return uint64(w.next()) }
		}),
		locks("a token minted by a second command after the take", counter, mintedAfter),
	}
}

// mintedAfter has an unlucky pause now and then between the take and the token: until another has taken over, whose
// token then is smaller.
func mintedAfter(p *patched, w *world) {
	lock := p.lock
	var minted atomic.Uint64
	p.lock = func(ctx context.Context) error {
		if err := lock(ctx); err != nil {
			return err
		}
		if rand.N(20) == 0 {
			before := w.last()
			for end := time.Now().Add(2 * p.ttl); w.last() == before && time.Now().Before(end); {
				time.Sleep(50 * time.Microsecond)
			}
		}
		minted.Store(uint64(w.next()))
		return nil
	}
	p.token = minted.Load
}

// last is what next returned.
func (w *world) last() int {
	w.Lock()
	defer w.Unlock()
	return w.count
}

func revives(p *patched, _ *world) {
	after(&p.extend, func(ctx context.Context, err error) error {
		if errors.Is(err, locker.ErrLost) {
			_ = p.Mutex.Unlock(ctx)
			return p.Mutex.TryLock(ctx)
		}
		return err
	})
}

// overdue believes in a hold for so much longer than it lasts.
func overdue(factor float64) func(p *patched, _ *world) {
	return func(p *patched, _ *world) {
		token := p.token
		var last atomic.Uint64
		var until atomic.Int64
		for _, m := range []*method{&p.lock, &p.tryLock, &p.rlock, &p.extend} {
			inner := *m
			*m = func(ctx context.Context) error {
				before := time.Now()
				err := inner(ctx)
				if err == nil {
					last.Store(token())
					until.Store(before.Add(time.Duration(factor * float64(p.ttl))).UnixNano())
				}
				return err
			}
		}
		p.lost = func() <-chan struct{} { return nil }
		p.token = func() uint64 {
			if time.Now().UnixNano() < until.Load() {
				return last.Load()
			}
			return 0
		}
		before(&p.unlock, func() { until.Store(0) })
	}
}

// unlockReturnsNil has Unlock return nil where it should return an error.
func unlockReturnsNil(of error) func(*patched, *world) {
	return func(p *patched, _ *world) { instead(&p.unlock, of, nil) }
}
