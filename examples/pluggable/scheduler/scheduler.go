// Package scheduler runs each job of a plan once, however many processes have the same plan. It is the library of the
// example: it needs a lock, and leaves to the program which one. So it imports the interface, and no backend.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

// Job is something to be done once.
type Job struct {
	Name string // unique in the plan, and of this occasion: "report 2026-11-22"
	// Run does it. Its context ends when the lock is lost, if the Locker tells.
	Run func(context.Context) error
}

// Ledger remembers what is done. All processes share it.
//
// It is the resource that the lock protects, and so the place where fencing tokens are looked at: both methods refuse
// 0, and any token below the largest that they have seen of the job. For a process may be paused
// past the end of its hold, and wake in the belief that it still has the lock.
type Ledger interface {
	// Begin reports whether the job is done.
	Begin(ctx context.Context, job string, token uint64) (done bool, err error)
	// Finish notes that it is.
	Finish(ctx context.Context, job string, token uint64) error
}

// Scheduler is one of many that have the same plan.
type Scheduler struct {
	lock   func(name string) locker.Locker
	ledger Ledger
}

// New makes a Scheduler. lock returns the lock of a name, which has to exclude all other processes.
func New(lock func(name string) locker.Locker, ledger Ledger) *Scheduler {
	return &Scheduler{lock: lock, ledger: ledger}
}

// Run runs those of the jobs that no other has run, and waits for those that another is running. It returns the names of
// the ones that it has run. One that fails stays to be done, by this process or another.
//
// A job is begun again if the process that ran it ended before it could say so, or if its lock was lost meanwhile. What
// must not happen twice even then has to look at a token itself.
func (s *Scheduler) Run(ctx context.Context, jobs ...Job) (ran []string, err error) {
	var errs []error
	for _, job := range jobs {
		did, err := s.once(ctx, job)
		if did {
			ran = append(ran, job.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("job %q: %w", job.Name, err))
		}
	}
	return ran, errors.Join(errs...)
}

// once runs the job unless it is done.
func (s *Scheduler) once(ctx context.Context, job Job) (did bool, err error) {
	lock := s.lock("jobs/" + job.Name)
	if err := lock.Lock(ctx); err != nil {
		return false, err
	}
	// Also when ctx has ended: others wait for it.
	defer func() { err = errors.Join(err, lock.Unlock(context.WithoutCancel(ctx))) }()

	done, err := s.ledger.Begin(ctx, job.Name, lock.FencingToken())
	if done || err != nil {
		return false, err
	}
	running, stop := whileHeld(ctx, lock)
	defer stop()
	if err := job.Run(running); err != nil {
		return false, err
	}
	// The token is 0 once the lock is lost, and the ledger refuses that.
	err = s.ledger.Finish(ctx, job.Name, lock.FencingToken())
	return err == nil, err
}

// whileHeld returns a context that ends with the hold of lock, if lock is one that tells.
func whileHeld(ctx context.Context, lock locker.Locker) (context.Context, context.CancelFunc) {
	if l, ok := lock.(interface {
		Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc)
	}); ok {
		return l.Context(ctx, 0)
	}
	return context.WithCancel(ctx)
}
