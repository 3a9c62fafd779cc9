// Package gocron lets gocron's schedulers (github.com/go-co-op/gocron/v2) take locks, or elect a
// leader, at any backend of locker.
//
// What gocron's interfaces cannot express, and what is done instead:
//
//   - Lock is not told which tick it is for. A lock excludes others while it is held; it does not
//     count runs. If another scheduler's clock is behind by more than the job takes, that scheduler
//     finds the lock free, and runs the tick again. Therefore a [Locker] keeps each lock for a
//     minimum, from its grant on. This does not help if a scheduler is stopped before its Lock, and
//     wakes after the minimum. If a second run would be wrong, the job has to keep a record of what
//     is done, as examples/service in the repository does.
//   - gocron cannot tell a job that its lock is lost, or its term over. The functions of
//     [Locker.Task] and [Elector.Task] learn it: their context ends. Nor can gocron tell a run
//     which lock it has. A Locker finds the lock of a run by the context that gocron passes to both
//     Lock and the run.
//   - Unlock gets the job's context, which has ended when the scheduler shuts down, and gocron
//     drops the error of Unlock. A Locker releases all the same, and passes the error to the
//     function that [NewLocker] was given.
//   - The lock's name is the job's name. By default this is the name of the job's function. All
//     functions that Task makes have the same name. Without [cron.WithName] (cron is gocron/v2 in
//     these texts), such a job is refused.
//
// A job of Task takes the fencing token, or the number of the term. No lock can stop a process that
// is paused, and wakes after its lock was given to another. The resource has to refuse its writes,
// by comparing the token (package fence).
//
// gocron asks either an Elector or a Locker: if it has an Elector, it asks no Locker.
package gocron

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	cron "github.com/go-co-op/gocron/v2"

	"github.com/go-locker/locker"
)

// Locker makes a job run on one scheduler at a time. It implements [cron.Locker], for
// [cron.WithDistributedLocker]. Make one with [NewLocker]. Several schedulers may share it.
type Locker struct {
	client  *locker.Client
	onError func(error)
	opts    []locker.MutexOption

	mu      sync.Mutex
	granted []*grant // those that no run of Task has taken
}

var _ cron.Locker = (*Locker)(nil)

// NewLocker returns a Locker that keeps each lock for minimum from its grant on, and for as long as
// its job runs. The minimum has to be longer than the difference between the schedulers' clocks,
// and clearly shorter than the time between two runs: within it nobody runs the job again, neither
// at its next tick nor by RunNow. It is [locker.AtLeast], which says what becomes of it if the
// process ends or closes its Client, and which backends cannot keep it.
//
// onError is called with the errors that gocron drops. One is the error of an Unlock, which is
// [locker.ErrLost] if the lock was lost before the job ended. The other is the error of a Lock,
// unless another scheduler has the lock, or the job is stopped. Without onError, an unreachable
// backend would look like jobs that others run. Several goroutines may call onError.
func NewLocker(c *locker.Client, minimum time.Duration, onError func(error), opts ...locker.MutexOption) (*Locker, error) {
	if minimum <= 0 {
		return nil, fmt.Errorf("gocron: a minimum hold of %v: must be above 0: longer than the clocks of the schedulers differ, "+
			"for a job that takes less would run again, and shorter than the time between two runs", minimum)
	}
	if onError == nil {
		return nil, errors.New("gocron: onError is nil: gocron drops errors, so somebody else has to hear of them")
	}
	opts = append(slices.Clone(opts), locker.AtLeast(minimum))
	// A Mutex that is not valid has one error for whatever is asked. Extend makes no request.
	if err := c.Mutex("job", opts...).Extend(context.Background()); !errors.Is(err, locker.ErrNotHeld) {
		return nil, fmt.Errorf("gocron: a minimum hold of %v: %w", minimum, err)
	}
	return &Locker{client: c, onError: onError, opts: opts}, nil
}

// Lock implements [cron.Locker]. It does not wait: it returns an error that matches locker.ErrHeld
// if another scheduler runs the job, or has done so within the minimum.
func (l *Locker) Lock(ctx context.Context, job string) (cron.Lock, error) {
	h, err := l.acquire(ctx, job)
	if err != nil {
		if !errors.Is(err, locker.ErrHeld) && ctx.Err() == nil { // else the job is stopped
			l.onError(err)
		}
		return nil, err
	}
	_, returned := h.Context(context.Background(), 0) // Close waits for the job, too
	g := &grant{l, ctx, h, returned}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = append(l.granted, g)
	return g, nil
}

func (l *Locker) acquire(ctx context.Context, job string) (*locker.Hold, error) {
	if job == unnamed {
		return nil, errUnnamed
	}
	return l.client.Mutex(job, l.opts...).TryAcquire(ctx)
}

func (l *Locker) tell(err error) {
	if err != nil {
		l.onError(err)
	}
}

// grant implements [cron.Lock].
type grant struct {
	locker *Locker
	ctx    context.Context // of the job
	hold   *locker.Hold

	returned context.CancelFunc // the job has
}

// Unlock implements [cron.Lock].
func (g *grant) Unlock(ctx context.Context) error {
	g.locker.take(func(other *grant) bool { return other == g })
	err := g.hold.Unlock(context.WithoutCancel(ctx))
	g.returned()
	g.locker.tell(err)
	return err
}

// take removes and returns the first grant that is wanted, of those that no run has taken, or nil.
func (l *Locker) take(wanted func(*grant) bool) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.granted, wanted)
	if i < 0 {
		return nil
	}
	g := l.granted[i]
	l.granted = slices.Delete(l.granted, i, i+1)
	return g
}

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
