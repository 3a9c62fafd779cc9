package conformance_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/testwait"
)

// hangsAtFirst is a naive lock whose first waiter waits for ever when its connection breaks; later ones do not.
func hangsAtFirst() conformance.Harness {
	h, made := naiveLocks("", 0), new(atomic.Int32)
	through := h.Faults.Through
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		l := through(t, name, ttl, via)
		if made.Add(1) <= 2 { // the first asks whether Through acts
			l.(*naive).flaw = "waits for an answer that was lost"
		}
		return l
	}
	return h
}

// A flaw that shows in one trial of five is no longer hidden by the others, where no trial may be in doubt.
func TestDoubts_ofALockThatHangsNowAndThen(t *testing.T) {
	testwait.OnlyNightly(t, "TestMutants has one broken Locker for each scenario")
	t.Cleanup(conformance.Doubts(0))
	var got conformance.Result
	for try := 0; try == 0 || got.Paused > 0 && try < 3; try++ { // that the machine paused is an excuse
		got = conformance.Examine(t, find(t, "a waiter whose connections were broken is served, or told"), hangsAtFirst())
	}
	if got.Paused > 0 {
		t.Skipf("the machine paused each time that the lock hung: %s", got)
	}
	assert.Equal(t, conformance.Broken, got.Outcome, "%+v", got)
	assert.Contains(t, got.Seen, "in 1 of ")
	assert.Contains(t, got.Seen, "has neither the lock nor an error")
}
