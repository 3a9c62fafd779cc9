package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/election"
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
	return m.TryDo(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		balance, err := s.Fetch(ctx, account) // ctx ends when the lock is lost
		if err != nil {
			return err
		}
		return redisfence.Set(ctx, s.Redis, "balance/"+account, token, balance, 0)
	})
}

// SyncConfig has tasks whose lock is another's come back soon. It does not count as a failure, nor
// does a lock that was lost. A task needs a MaxRetry of 1 or more, which it is not to use up.
func SyncConfig() asynq.Config {
	return asynq.Config{
		IsFailure: func(err error) bool { return !notItsTurn(err) }, // ErrHeld and ErrLost are no failures
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
	return errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost)
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
