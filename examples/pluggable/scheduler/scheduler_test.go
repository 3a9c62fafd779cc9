package scheduler_test

import (
	"context"
	"errors"
	"go/build"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/examples/pluggable/scheduler"
	"github.com/go-locker/locker/locktest"
)

func TestPackage_importsNoBackend(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	for _, path := range p.Imports {
		first, _, _ := strings.Cut(path, "/")
		assert.True(t, path == "github.com/go-locker/locker" || !strings.Contains(first, "."), "it imports %s", path)
	}
}

// ledger is one in memory.
type ledger struct {
	mu   sync.Mutex
	seen map[string]uint64
	done map[string]bool
}

func newLedger() *ledger { return &ledger{seen: map[string]uint64{}, done: map[string]bool{}} }

func (l *ledger) Begin(_ context.Context, job string, token uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[job], l.check(job, token)
}

func (l *ledger) Finish(_ context.Context, job string, token uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.check(job, token)
	l.done[job] = l.done[job] || err == nil
	return err
}

var errStale = errors.New("stale token")

func (l *ledger) check(job string, token uint64) error {
	if token == 0 || token < l.seen[job] {
		return errStale
	}
	l.seen[job] = token
	return nil
}

// locks are those of a process.
func locks(t *testing.T, opts ...locker.Option) func(string) locker.Locker {
	t.Helper()
	c := locktest.New(t, opts...)
	return func(name string) locker.Locker { return c.Mutex(name) }
}

// together has schedulers run a job at the same time, and counts how often it ran.
func together(t *testing.T, lock func() func(string) locker.Locker, job func(ctx context.Context) error) (runs int) {
	t.Helper()
	var all sync.WaitGroup
	var ran [2][]string
	var errs [2]error
	shared := newLedger()
	for i := range ran {
		s := scheduler.New(lock(), shared)
		all.Go(func() { ran[i], errs[i] = s.Run(t.Context(), scheduler.Job{Name: "report", Run: job}) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	return len(ran[0]) + len(ran[1])
}

func TestRun_eachJobOnce(t *testing.T) {
	runs := together(t, func() func(string) locker.Locker { return locks(t) }, func(context.Context) error {
		time.Sleep(10 * time.Millisecond)
		return nil
	})
	assert.Equal(t, 1, runs)
}

func TestRun_aJobThatFailsStaysToBeDone(t *testing.T) {
	s := scheduler.New(locks(t), newLedger())
	failed := errors.New("no paper")
	job := func(err error) scheduler.Job {
		return scheduler.Job{Name: "print", Run: func(context.Context) error { return err }}
	}
	ran, err := s.Run(t.Context(), job(failed))
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, `job "print"`)
	assert.Empty(t, ran)
	ran, err = s.Run(t.Context(), job(nil))
	require.NoError(t, err)
	assert.Equal(t, []string{"print"}, ran)
	ran, err = s.Run(t.Context(), job(failed))
	require.NoError(t, err)
	assert.Empty(t, ran)
}

func TestRun_aJobIsToldOfTheLossAndItsResultIsRefused(t *testing.T) {
	s := scheduler.New(locks(t, locker.WithTTL(20*time.Millisecond), locker.WithoutRenewal()), newLedger())
	ran, err := s.Run(t.Context(), scheduler.Job{Name: "slow", Run: func(ctx context.Context) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		return nil // it does not heed that
	}})
	require.ErrorIs(t, err, errStale)
	require.ErrorIs(t, err, locker.ErrLost)
	assert.Empty(t, ran)
}

func TestRun_ofAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran, err := scheduler.New(locks(t), newLedger()).Run(ctx, scheduler.Job{Name: "x", Run: func(context.Context) error { panic("ran") }})
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, ran)
}
