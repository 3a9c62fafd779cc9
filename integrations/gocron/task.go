package gocron

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	cron "github.com/go-co-op/gocron/v2"
)

// Task returns a task that calls f with a context, and with the fencing token of the lock. The
// context ends when the lock is lost, with the cause [locker.ErrLost], or when gocron's own context
// ends. The error of a loss is added to that of f, so that gocron counts the run as failed, and
// calls AfterJobRunsWithError.
//
// Each job of Task needs [cron.WithName]. Its scheduler, or the job itself, has to use this Locker.
// Otherwise f is never called, and onError is told why.
//
// Two runs never share a lock. If several runs of a job are granted locks before they start, the
// first to start gets the lock that was granted first, and so on. So each run gets its own lock,
// with one exception: a run may be delayed after its grant, until its lock is lost and another run
// of the same scheduler has taken it. These two runs may get each other's lock. Then both may fail,
// but f never runs without a lock that is held.
func (l *Locker) Task(f func(ctx context.Context, token uint64) error) cron.Task {
	return cron.NewTask((&task{l, f}).run)
}

type task struct {
	locker *Locker
	f      func(ctx context.Context, token uint64) error
}

// unnamed is the name that gocron gives to a job of Task without one of its own.
var unnamed = runtime.FuncForPC(reflect.ValueOf((*task)(nil).run).Pointer()).Name()

var (
	errUnnamed = errors.New("gocron: a job of Task has no name, so that all of them would share one lock: give each gocron.WithName")
	errNoLock  = errors.New("gocron: a job of Task has no lock, and is not run: give its scheduler gocron.WithDistributedLocker with the Locker " +
		"that made the task, or use gocron.NewTask")
)

func (t *task) run(ctx context.Context) error {
	g := t.locker.take(func(g *grant) bool { return g.ctx == ctx })
	if g == nil {
		t.locker.onError(errNoLock)
		return errNoLock
	}
	h := g.hold
	held, cancel := h.Context(ctx, 0)
	defer cancel()
	err := h.Err()
	if err == nil {
		err = t.f(held, h.Token())
	}
	if lost := h.Err(); lost != nil && !errors.Is(err, lost) {
		err = errors.Join(err, fmt.Errorf("gocron: the job's lock: %w", lost))
	}
	return err
}
