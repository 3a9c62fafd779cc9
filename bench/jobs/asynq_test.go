package jobs_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/jobs"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Two servers have two tasks of one account, and one of another. A task whose lock is another's
// comes back, and uses up no retry.
func TestSync_noTwoTasksOfAnAccountRunAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	at := asynq.RedisClientOpt{Addr: s.Addr()}
	var running, most, done, tries atomic.Int64
	first := make(chan struct{})
	fetch := func(_ context.Context, account string) (string, error) {
		if account == "7" {
			<-first
			return "7", nil
		}
		if running.Add(1) > most.Load() {
			most.Store(running.Load())
		}
		patience.Until(t, "the other was tried, too", func() bool { return tries.Load() > 1 })
		running.Add(-1)
		done.Add(1)
		return "done", nil
	}
	for range 2 {
		h := &jobs.Sync{Locks: open(t, s.URL()+"?prefix=sync"), Redis: connect(t, s.Addr()), Fetch: fetch}
		serve(t, at, jobs.SyncConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if string(task.Payload()) == "42" {
				tries.Add(1)
			}
			return h.ProcessTask(ctx, task)
		}))
	}
	var last *asynq.TaskInfo
	for _, account := range []string{"7", "42", "42"} {
		var err error
		last, err = enqueue(t, at, asynq.NewTask("sync", []byte(account)), asynq.MaxRetry(1), asynq.Retention(time.Hour))
		require.NoError(t, err)
	}
	patience.Until(t, "both of one account are done, while that of the other runs", func() bool { return done.Load() == 2 })
	assert.EqualValues(t, 1, most.Load())
	close(first)
	inspector := asynq.NewInspector(at)
	t.Cleanup(func() { _ = inspector.Close() })
	patience.Until(t, "the last is done", func() bool {
		info, err := inspector.GetTaskInfo("default", last.ID)
		require.NoError(t, err)
		assert.Zero(t, info.Retried)
		return info.State == asynq.TaskStateCompleted
	})
	assert.Equal(t, "done", connect(t, s.Addr()).Get(t.Context(), "balance/42").Val())
}

// A task writes after another has, that had the lock later.
func TestSync_aLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	h := &jobs.Sync{
		Locks: open(t, s.URL()+"?prefix=latesync"), Redis: rdb,
		Fetch: func(ctx context.Context, _ string) (string, error) {
			return "late", redisfence.Set(ctx, rdb, "balance/42", math.MaxInt64, "newer", 0)
		},
	}
	require.ErrorIs(t, h.ProcessTask(t.Context(), asynq.NewTask("sync", []byte("42"))), fence.ErrStale)
	assert.Equal(t, "newer", rdb.Get(t.Context(), "balance/42").Val())
}

// Another process that led may enqueue a tick that this one has, or has had.
func TestTicks_eachIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	at := asynq.RedisClientOpt{Addr: testserver.Redis(t).Addr()}
	for i, want := range []error{nil, asynq.ErrTaskIDConflict} {
		_, err := enqueue(t, at, asynq.NewTask("report", nil), asynq.TaskID("report/1"), asynq.Retention(time.Hour))
		require.ErrorIs(t, err, want)
		if i == 0 {
			var done atomic.Int64
			serve(t, at, asynq.Config{}, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { done.Add(1); return nil }))
			patience.Until(t, "it is done", func() bool { return done.Load() == 1 })
		}
	}
}
