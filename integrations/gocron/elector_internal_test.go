package gocron

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// overdue is the context of a term that is over by the clock, while its timer has not fired: the process has just woken.
type overdue struct{ context.Context }

func (overdue) Err() error { return locker.ErrLost }

func TestWake_everyLookIsByTheClock(t *testing.T) {
	e := Elector{term: &term{ctx: overdue{t.Context()}}}
	require.ErrorIs(t, e.IsLeader(t.Context()), locker.ErrNotHeld)
	during := func() *termContext {
		own, cancel := context.WithCancelCause(t.Context())
		return &termContext{own, overdue{t.Context()}, cancel}
	}
	require.ErrorIs(t, during().Err(), context.Canceled)
	select {
	case <-during().Done():
	default:
		t.Error("the job's Done waits for the timer")
	}
}
