package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
)

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
	err := m.TryDo(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		cents, err := w.Price(ctx, job.Args.Account) // ctx ends when the lock is lost
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, w.DB, func(tx pgx.Tx) error { return w.write(ctx, tx, job, token, cents) })
	})
	if errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
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
