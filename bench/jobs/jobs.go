// Package jobs is recipes for job queues: asynq, on Redis, and River, on PostgreSQL. It is not to
// be imported, but to be copied from; docs/integrations.md in the repository says what is for what,
// and the tests run it with the libraries.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
)

// Sync is a handler of tasks whose payload is the name of an account. No two tasks of one account
// run at once, on any server.
type Sync struct {
	Locks *locker.Client
	Redis redis.UniversalClient
	Fetch func(ctx context.Context, account string) (balance string, err error) // takes a while
}

// ProcessTask implements asynq.Handler.
func (s *Sync) ProcessTask(ctx context.Context, task *asynq.Task) error {
	account := string(task.Payload())
	m := s.Locks.Mutex("sync/" + account)
	ran, err := m.TryDo(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		balance, err := s.Fetch(ctx, account) // ctx ends when the lock is lost
		if err != nil {
			return err
		}
		return redisfence.Set(ctx, s.Redis, "balance/"+account, token, balance, 0)
	})
	if !ran && err == nil {
		return errAnotherRuns
	}
	return err
}

var errAnotherRuns = errors.New("another task of the account runs")

// SyncConfig has tasks whose lock is another's come back soon. It does not count as a failure, nor
// does a lock that was lost. A task needs a MaxRetry of 1 or more, which it is not to use up.
func SyncConfig() asynq.Config {
	return asynq.Config{
		IsFailure: func(err error) bool { return !notItsTurn(err) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if notItsTurn(err) {
				return time.Second
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
		DelayedTaskCheckInterval: time.Second, // how often asynq looks for tasks that are due; default 5 s
	}
}

func notItsTurn(err error) bool {
	return errors.Is(err, errAnotherRuns) || errors.Is(err, locker.ErrLost)
}

// Ticks enqueues a task each time that interval has passed, until ctx ends, while this process
// leads. A leader that was stopped, and wakes, may enqueue one more: so the task of a tick has an
// ID, and is kept when it is done.
func Ticks(ctx context.Context, e *election.Election, client *asynq.Client, typ string, interval time.Duration) error {
	return e.Lead(ctx, time.Second, func(ctx context.Context, _ uint64) {
		for {
			now := time.Now()
			tick := now.Truncate(interval)
			id := asynq.TaskID(fmt.Sprint(typ, "/", tick.UnixMilli()))
			_, err := client.EnqueueContext(ctx, asynq.NewTask(typ, nil), id, asynq.Retention(10*interval))
			again := tick.Add(interval).Sub(now)
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				again = interval / 10 // Redis was unreachable
			}
			select {
			case <-time.After(again):
			case <-ctx.Done():
				return
			}
		}
	})
}

// BillArgs are those of a job that bills an account.
type BillArgs struct {
	Account string `json:"account"`
	Month   string `json:"month"`
}

// Kind implements river.JobArgs.
func (BillArgs) Kind() string { return "bill" }

// Bill is a worker. No two jobs of one account run at once, in any process.
type Bill struct {
	river.WorkerDefaults[BillArgs]

	Locks *locker.Client
	DB    *pgxpool.Pool
	Price func(ctx context.Context, account string) (cents int, err error) // takes a while
}

// Work implements river.Worker.
func (w *Bill) Work(ctx context.Context, job *river.Job[BillArgs]) error {
	m := w.Locks.Mutex("bill/" + job.Args.Account)
	ran, err := m.TryDo(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		cents, err := w.Price(ctx, job.Args.Account) // ctx ends when the lock is lost
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, w.DB, func(tx pgx.Tx) error { return w.write(ctx, tx, job, token, cents) })
	})
	if !ran && err == nil || errors.Is(err, locker.ErrLost) {
		return river.JobSnooze(time.Second) // does not count as an attempt
	}
	return err
}

// write writes, and completes the job, in one transaction; unless one that had the lock later has
// written. The row of an account is there.
func (w *Bill) write(ctx context.Context, tx pgx.Tx, job *river.Job[BillArgs], token uint64, cents int) error {
	done, err := tx.Exec(ctx, "UPDATE accounts SET bill = $1, token = $2 WHERE name = $3 AND token <= $2", cents, token, job.Args.Account)
	if err != nil {
		return err
	}
	if done.RowsAffected() == 0 {
		return fence.ErrStale
	}
	_, err = river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
	return err
}

// OncePerAccount has an Insert add nothing while a job with the same arguments is queued or runs.
var OncePerAccount = &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
}}}

// OncePerHour has a periodic job be inserted once an hour, whoever inserts it: a leader of River's
// that was stopped, and wakes, too.
var OncePerHour = &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByPeriod: time.Hour}}
