package goose

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// overdue is the context of a hold that is over by the clock, while its timer has not fired: the
// process has just woken.
type overdue struct{ context.Context }

func (overdue) Err() error { return locker.ErrLost }

func TestWake_everyLookIsByTheClock(t *testing.T) {
	lost, cancel := context.WithCancelCause(t.Context())
	cancel(locker.ErrLost)
	woken := func() *lossContext {
		own, end := context.WithCancelCause(t.Context())
		c := &lossContext{Context: own, end: end}
		held := context.Context(overdue{lost})
		c.held.Store(&held)
		return c
	}
	require.ErrorIs(t, woken().Err(), context.Canceled)
	select {
	case <-woken().Done():
	default:
		t.Error("Done waits for the timer")
	}
}
