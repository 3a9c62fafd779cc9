//go:build unix

package jobs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/jobs"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func init() {
	child.Register("sync", syncs)
	child.Register("bill", bills)
	child.Register("ticks", ticks)
}

const ttl = "&ttl=3s"

// lines reads what the parent tells.
func lines() func() string {
	in := bufio.NewScanner(os.Stdin)
	return func() string {
		in.Scan()
		return in.Text()
	}
}

// forever keeps a process alive until it is killed: what it began runs in goroutines.
func forever() { select {} }

// syncs is a server whose tasks say that they run, and take what they write from the parent.
func syncs(t testing.TB) {
	at, next := asynq.RedisClientOpt{Addr: os.Getenv(envQueue)}, lines()
	h := &jobs.Sync{
		Locks: open(t, os.Getenv(envLocks)), Redis: connect(t, at.Addr),
		Fetch: func(context.Context, string) (string, error) { // it does not look at ctx
			fmt.Println("runs")
			return next(), nil
		},
	}
	serve(t, at, jobs.SyncConfig(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := h.ProcessTask(ctx, task)
		if !errors.Is(err, locker.ErrHeld) {
			fmt.Println("ended", err == nil, errors.Is(err, locker.ErrLost))
		}
		return err
	}))
	forever()
}

// A server is stopped for longer than its TTL in the midst of a task, and another task of the same
// account runs at another. When the first wakes, its task writes nothing, and comes back.
func TestStopped_syncWritesNothingWhenItWakes(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "a process is started and stopped; what it is told of a loss the tests of package locker show")
	s := testserver.Redis(t)
	at := asynq.RedisClientOpt{Addr: s.Addr()}
	env := []string{envLocks + "=" + s.URL() + "?prefix=stopped" + ttl, envQueue + "=" + at.Addr}
	rdb := connect(t, s.Addr())
	add := func() {
		_, err := enqueue(t, at, asynq.NewTask("sync", []byte("42")), asynq.MaxRetry(1))
		require.NoError(t, err)
	}
	first := child.Start(t, "sync", env...)
	add()
	first.Says("runs")
	first.Stop()
	second := child.Start(t, "sync", env...)
	add()
	second.Says("runs")
	second.Tell("by the second")
	assert.Equal(t, []string{"true", "false"}, second.Says("ended"))
	second.Kill()
	first.Continue()
	first.Tell("by the first")
	assert.Equal(t, []string{"false", "true"}, first.Says("ended"))
	assert.Equal(t, "by the second", rdb.Get(t.Context(), "balance/42").Val())
	first.Says("runs")
	first.Tell("once more")
	assert.Equal(t, []string{"true", "false"}, first.Says("ended"))
	assert.Equal(t, "once more", rdb.Get(t.Context(), "balance/42").Val())
}

// bills is a worker whose jobs say that they run, and take what they write from the parent.
func bills(t testing.TB) {
	next := lines()
	pool := connectPostgres(t, os.Getenv(envQueue))
	work(t, pool, &jobs.Bill{
		Locks: open(t, os.Getenv(envLocks)), DB: pool,
		Price: func(context.Context, string) (int, error) { // it does not look at ctx
			fmt.Println("runs")
			return strconv.Atoi(next())
		},
	})
	forever()
}

// The same with River. The jobs are completed, or come back, by themselves.
func TestStopped_billWritesNothingWhenItWakes(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "a process is started and stopped; what it is told of a loss the tests of package locker show")
	at := accounts(t)
	pool := connectPostgres(t, at)
	env := []string{envLocks + "=" + testserver.SharedRedis(t).URL() + "?prefix=stoppedbill" + ttl, envQueue + "=" + at}
	c := work(t, pool, nil)
	add := func(month string) {
		_, err := c.Insert(t.Context(), jobs.BillArgs{Account: "42", Month: month}, nil)
		require.NoError(t, err)
	}
	completed := func() (months string) {
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT coalesce(string_agg(args->>'month', ' ' ORDER BY finalized_at), '') FROM river_job WHERE state = 'completed'").Scan(&months))
		return months
	}
	first := child.Start(t, "bill", env...)
	add("May")
	first.Says("runs")
	first.Stop()
	second := child.Start(t, "bill", env...)
	add("June")
	second.Says("runs")
	second.Tell("200")
	patience.Until(t, "the second job is done", func() bool { return completed() == "June" })
	assert.Equal(t, 200, billed(t, pool))
	second.Kill()
	first.Continue()
	first.Tell("100")
	first.Says("runs") // again, because the first time its lock was lost
	assert.Equal(t, 200, billed(t, pool))
	assert.Equal(t, "June", completed())
	first.Tell("300")
	patience.Until(t, "the first job is done, too", func() bool { return completed() == "June May" })
	assert.Equal(t, 300, billed(t, pool))
}

const interval = 500 * time.Millisecond

// ticks is a process that enqueues a report for each tick, while it leads.
func ticks(t testing.TB) {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: os.Getenv(envQueue)})
	e := election.New(open(t, os.Getenv(envLocks)), "reports")
	go func() {
		for !e.IsLeader() {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("leads")
	}()
	require.NoError(t, jobs.Ticks(t.Context(), e, client, "report", interval))
}

// The process that leads is stopped for longer than its TTL, and another one goes on. When the
// first wakes, no report is made twice.
func TestStopped_ticksGoOnAndNoneComesTwice(t *testing.T) {
	t.Parallel()
	testwait.OnlyNightly(t, "a process is started and stopped; who leads the tests of package election show")
	s := testserver.Redis(t)
	at := asynq.RedisClientOpt{Addr: s.Addr()}
	env := []string{envLocks + "=" + s.URL() + "?prefix=ticks" + ttl, envQueue + "=" + at.Addr}
	var mu sync.Mutex
	reports := map[string]int{}
	serve(t, at, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		reports[id]++
		return nil
	}))
	more := func(what string) {
		mu.Lock()
		before := len(reports)
		mu.Unlock()
		patience.Until(t, what, func() bool { mu.Lock(); defer mu.Unlock(); return len(reports) > before+2 })
	}
	first := child.Start(t, "ticks", env...)
	first.Says("leads")
	more("the first makes reports")
	first.Stop()
	second := child.Start(t, "ticks", env...)
	second.Says("leads")
	more("the second makes reports")
	first.Continue()
	more("both run, and one of them leads")
	mu.Lock()
	defer mu.Unlock()
	for id, n := range reports {
		assert.Equal(t, 1, n, id)
		assert.True(t, strings.HasPrefix(id, "report/"), id)
	}
}
