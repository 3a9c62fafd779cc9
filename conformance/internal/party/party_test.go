package party

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
)

// verdict is what a body says.
func verdict(t *testing.T, calm bool, body func(*Env)) (err error, certain bool) {
	t.Helper()
	e := NewEnv(t, harness.Harness{TTL: time.Second})
	defer e.Close()
	e.Calm = calm
	_, err = e.Trial.Run(time.Minute, func() { body(e) })
	_, doubt := errors.AsType[*engine.Doubt](err)
	return err, err != nil && !doubt
}

// robbed says what a Locker says whose hold was taken.
type robbed struct{ token uint64 }

func (robbed) Lock(context.Context) error { return nil }

func (robbed) Unlock(context.Context) error { return locker.ErrLost }

func (robbed) Extend(context.Context) error { return locker.ErrLost }

func (r robbed) FencingToken() uint64 { return r.token }

// warned is robbed, and has heard of it.
type warned struct{ robbed }

func (warned) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

// An overlap is a certain breach while the hold is assured. That its holder was notified of the
// loss is an excuse only if there are faults.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		what    string
		l       locker.Locker
		ago     time.Duration
		calm    bool // there are no faults
		certain bool
	}{
		{"nothing tells", robbed{5}, 0, true, true},
		{"its time is over", robbed{5}, 501 * time.Millisecond, true, false},
		{"the token tells", robbed{0}, 0, true, true},
		{"Lost tells", warned{robbed{5}}, 0, true, true},
		{"nothing tells, with faults", robbed{5}, 0, false, true},
		{"the token tells, with faults", robbed{0}, 0, false, false},
		{"Lost tells, with faults", warned{robbed{5}}, 0, false, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			err, certain := verdict(t, c.calm, func(e *Env) {
				a, b := e.Using(c.l, "A", "x", time.Second), e.Using(c.l, "B", "x", time.Second)
				a.Take()
				lasts := a.lasts.Load().Add(-c.ago)
				a.lasts.Store(&lasts)
				a.Overlap(b)
			})
			require.Error(t, err)
			assert.Equal(t, c.certain, certain, "%v", err)
		})
	}
}

// late takes longer than no time at all.
type late struct{ robbed }

func (late) Lock(context.Context) error {
	time.Sleep(50 * time.Millisecond)
	return nil
}

// A Lock whose ctx ended long ago has as much time to return as any other.
func TestParty_aCallAfterTheEndOfItsContextHasALimit(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	err, _ := verdict(t, true, func(e *Env) { _ = e.Using(late{}, "A", "x", time.Second).Lock(ctx) })
	require.NoError(t, err)
}

// A trial is discarded if a program starts slowly while deadlines run: those of a context that the
// scenario has made, not of one with which a Harness connects.
func TestPace_whatAHarnessDoesSetsNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEnv(t, harness.Harness{TTL: time.Second, New: func(t harness.TB, _ string, _ time.Duration) locker.Locker {
			_ = t.Context()
			return robbed{}
		}})
		defer e.Close()
		start := func() { defer e.Starting()(); time.Sleep(2 * promptly) }
		e.Party("A", "x", time.Second)
		start()
		require.NoError(t, e.Pace.Rehearsed())
		_ = e.Context()
		start()
		require.ErrorIs(t, e.Pace.Rehearsed(), engine.ErrInDoubt)
	})
}
