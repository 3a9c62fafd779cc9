package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
)

// verdict is what a body says.
func verdict(t *testing.T, body func(*env), needs ...need) (err error, certain bool) {
	t.Helper()
	_, err = row{body: body, needs: needs}.trial(t, Harness{TTL: time.Second}, time.Minute)
	_, doubt := errors.AsType[*engine.Doubt](err)
	return err, err != nil && !doubt
}

// robbed says what a Locker says whose hold was taken.
type robbed struct{ token uint64 }

func (robbed) Lock(context.Context) error   { return nil }
func (robbed) Unlock(context.Context) error { return locker.ErrLost }
func (robbed) Extend(context.Context) error { return locker.ErrLost }
func (r robbed) FencingToken() uint64       { return r.token }

// warned is robbed, and has heard of it.
type warned struct{ robbed }

func (warned) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

// A theft is certain if the hold had to last. That its victim was told is an excuse if there are
// faults.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		what    string
		l       locker.Locker
		ago     time.Duration
		faults  []need
		certain bool
	}{
		{"nothing tells", robbed{5}, 0, nil, true},
		{"its time is over", robbed{5}, 501 * time.Millisecond, nil, false},
		{"the token tells", robbed{0}, 0, nil, true},
		{"Lost tells", warned{robbed{5}}, 0, nil, true},
		{"nothing tells, with faults", robbed{5}, 0, []need{links}, true},
		{"the token tells, with faults", robbed{0}, 0, []need{links}, false},
		{"Lost tells, with faults", warned{robbed{5}}, 0, []need{links}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			err, certain := verdict(t, func(e *env) {
				a, b := e.using(c.l, "A", "x", time.Second), e.using(c.l, "B", "x", time.Second)
				a.take()
				lasts := a.lasts.Load().Add(-c.ago)
				a.lasts.Store(&lasts)
				a.overlap(b)
			}, c.faults...)
			require.Error(t, err)
			assert.Equal(t, c.certain, certain, "%v", err)
		})
	}
}

func TestDisjoint(t *testing.T) {
	began := time.Now()
	hold := func(who string, from, to int, token uint64) interval {
		at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
		return interval{who: who, from: at(from), to: at(to), token: token}
	}
	lost := func(t interval) interval { t.lost = true; return t }
	for _, c := range []struct {
		what      string
		intervals []interval
		broken    bool
	}{
		{"one after the other", []interval{hold("A", 0, 10, 1), hold("B", 11, 20, 2)}, false},
		{"two at once", []interval{hold("A", 0, 10, 1), hold("B", 9, 20, 2)}, true},
		{"the victim hears of it at its Unlock", []interval{lost(hold("A", 0, 10, 1)), hold("B", 9, 20, 2)}, true},
		{"the thief hears of it at its Unlock", []interval{hold("A", 0, 10, 1), lost(hold("B", 9, 20, 2))}, true},
		{"without tokens", []interval{lost(hold("A", 0, 10, 0)), hold("B", 9, 20, 0)}, true},
		{"the victim was told from the first", []interval{lost(hold("A", 0, 10, 0)), hold("B", 9, 20, 2)}, true},
		{"its time was over when the thief's Lock returned", []interval{hold("A", 0, 10, 1), lost(hold("B", 9, 9, 2))}, false},
		{"lost while nobody else held", []interval{lost(hold("A", 0, 10, 1)), hold("B", 11, 20, 2)}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			err, certain := verdict(t, func(e *env) { e.disjoint(c.intervals) })
			assert.Equal(t, c.broken, certain, "%v", err)
		})
	}
}

// A cut has to show.
func TestUneven(t *testing.T) {
	for _, shortest := range []time.Duration{
		10 * time.Millisecond, 250 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 999 * time.Millisecond,
		time.Second, 1500 * time.Millisecond, 2 * time.Second, 4 * time.Second, 10 * time.Second,
	} {
		ttl := uneven(shortest)
		assert.Greater(t, ttl, shortest)
		assert.Less(t, ttl, 3*max(shortest, time.Second), "of %v: it takes long", shortest)
		seconds := ttl % time.Second
		assert.Greater(t, seconds, drift(ttl)+100*time.Millisecond, "of %v: %v cut to seconds", shortest, ttl)
		assert.Less(t, seconds, time.Second/2, "of %v: %v rounded to seconds", shortest, ttl)
		assert.Equal(t, 85*time.Millisecond, ttl%(100*time.Millisecond), "of %v: %v cut to tenths", shortest, ttl)
		if shortest >= 250*time.Millisecond {
			assert.Greater(t, ttl%shortest, drift(ttl)+100*time.Millisecond, "of %v: %v cut to multiples of it", shortest, ttl)
		}
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
	err, _ := verdict(t, func(e *env) { _ = e.using(late{}, "A", "x", time.Second).lock(ctx) })
	require.NoError(t, err)
}
