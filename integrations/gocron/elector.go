package gocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cron "github.com/go-co-op/gocron/v2"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
)

// Elector makes all jobs run on the scheduler that leads. It implements [cron.Elector], for
// [cron.WithDistributedElector]. Make one with [NewElector], and call [Elector.Lead].
//
// While the leader stays the same, each tick runs once. When another takes over, a tick may run
// again, if the clock of the new leader is late. While nobody leads, ticks are missed.
type Elector struct {
	election *election.Election

	mu   sync.Mutex
	term *term // or nil
}

var _ cron.Elector = (*Elector)(nil)

// NewElector returns an Elector over e, which nothing else may use.
func NewElector(e *election.Election) *Elector { return &Elector{election: e} }

// term is what this process leads.
type term struct {
	ctx    context.Context // its Err looks at the clock
	number uint64
	jobs   sync.WaitGroup // of Task
}

var errNotLeader = fmt.Errorf("gocron: this process does not lead: %w", locker.ErrNotHeld)

// Lead makes this scheduler a candidate until ctx ends. It returns the errors of
// [election.Election.Lead]. When a term ends, the contexts of its jobs end. When the contexts have
// ended, Lead waits for the jobs of Task that still run, and then gives up the lock. If the jobs
// take longer than the reserve, the lock may expire, and another may lead before they return. Shut
// the scheduler down before ctx ends, or at the same time.
func (e *Elector) Lead(ctx context.Context, reserve time.Duration) error {
	return e.election.Lead(ctx, reserve, func(ctx context.Context, number uint64) {
		t := &term{ctx: ctx, number: number}
		e.set(t)
		<-ctx.Done()
		e.set(nil)
		t.jobs.Wait()
	})
}

func (e *Elector) set(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// IsLeader implements [cron.Elector]. It makes no request, and looks at the clock.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leads()
}

// leads returns nil if this process leads. The caller holds e.mu.
func (e *Elector) leads() error {
	if e.term == nil || e.term.ctx.Err() != nil {
		return errNotLeader
	}
	return nil
}

// begin begins a job of the term. It needs one jobs.Done.
func (e *Elector) begin() (*term, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.leads(); err != nil {
		return nil, err
	}
	e.term.jobs.Add(1)
	return e.term, nil
}

// Task returns a task that calls f with a context, and with the number of the term, which is a
// fencing token. The context ends when the term ends, or when gocron's own context ends. If the
// term ends first, the error of that is added to f's, so that gocron counts the run as failed. A
// run that begins when the term is over fails without a call of f.
func (e *Elector) Task(f func(ctx context.Context, term uint64) error) cron.Task {
	return cron.NewTask(func(ctx context.Context) error {
		t, err := e.begin()
		if err != nil {
			return err
		}
		defer t.jobs.Done()
		own, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		during := &termContext{own, t.ctx, cancel}
		defer context.AfterFunc(t.ctx, during.look)()
		err = f(during, t.number)
		if t.ctx.Err() != nil {
			err = errors.Join(err, fmt.Errorf("gocron: the term has ended: %w", context.Cause(t.ctx)))
		}
		return err
	})
}

// termContext is a job's context that ends with the term. Err and Done check the clock, as those of
// the term do.
type termContext struct {
	context.Context

	term   context.Context
	cancel context.CancelCauseFunc
}

func (c *termContext) look() {
	if c.term.Err() != nil {
		c.cancel(context.Cause(c.term))
	}
}

// Err implements [context.Context].
func (c *termContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements [context.Context].
func (c *termContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}
