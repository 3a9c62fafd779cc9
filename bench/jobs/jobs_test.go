package jobs_test

import (
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/jobs"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/freshdb"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/redis"
)

// accounts makes a database with River's tables and an account, and returns its URL.
func accounts(t testing.TB) string {
	t.Helper()
	url := freshdb.Of[sqlfence.Postgres](t).DSN
	pool := connectPostgres(t, url)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent()})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE accounts (name text PRIMARY KEY, bill int NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO accounts (name) VALUES ('42'), ('7')")
	require.NoError(t, err)
	return url
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func connectPostgres(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// work works jobs until t ends, if there is a worker.
func work(t testing.TB, pool *pgxpool.Pool, w *jobs.Bill) *river.Client[pgx.Tx] {
	t.Helper()
	cfg := &river.Config{Logger: silent(), FetchPollInterval: 100 * time.Millisecond}
	if w != nil {
		cfg.Workers, cfg.Queues = river.NewWorkers(), map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}
		river.AddWorker(cfg.Workers, w)
	}
	c, err := river.NewClient(riverpgxv5.New(pool), cfg)
	require.NoError(t, err)
	if w != nil {
		require.NoError(t, c.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = c.StopAndCancel(ctx)
		})
	}
	return c
}

// Two processes have two jobs of one account. One whose lock is another's comes back, and uses up
// no attempt.
func TestBill_noTwoJobsOfAnAccountRunAtOnce(t *testing.T) {
	t.Parallel()
	at, locks := accounts(t), testserver.SharedRedis(t).URL()+"?prefix=bill"
	var running, most, calls atomic.Int64
	var pool *pgxpool.Pool
	var client *river.Client[pgx.Tx]
	price := func(context.Context, string) (int, error) {
		if running.Add(1) > most.Load() {
			most.Store(running.Load())
		}
		defer running.Add(-1)
		if calls.Add(1) == 1 {
			patience.Until(t, "the other was tried, too", func() bool {
				var snoozed int
				err := pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE metadata ? 'snoozes'").Scan(&snoozed)
				return err == nil && snoozed == 1
			})
		}
		return 100 * int(calls.Load()), nil
	}
	pool = connectPostgres(t, at)
	for range 2 {
		client = work(t, connectPostgres(t, at), &jobs.Bill{Locks: open(t, locks), DB: pool, Price: price})
	}
	for _, month := range []string{"May", "June"} {
		_, err := client.Insert(t.Context(), jobs.BillArgs{Account: "42", Month: month}, jobs.OncePerAccount)
		require.NoError(t, err)
	}
	patience.Until(t, "both are done", func() bool {
		var done, attempts int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*), coalesce(sum(attempt), 0) FROM river_job WHERE state = 'completed'").Scan(&done, &attempts))
		return done == 2 && attempts == 2
	})
	assert.EqualValues(t, 1, most.Load())
	assert.Equal(t, 200, billed(t, pool))
}

func billed(t testing.TB, pool *pgxpool.Pool) (cents int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT bill FROM accounts WHERE name = '42'").Scan(&cents))
	return cents
}

// A job writes after another has, that had the lock later.
func TestBill_aLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	pool := connectPostgres(t, accounts(t))
	client := work(t, pool, &jobs.Bill{
		Locks: open(t, testserver.SharedRedis(t).URL()+"?prefix=latebill"), DB: pool,
		Price: func(ctx context.Context, _ string) (int, error) {
			_, err := pool.Exec(ctx, "UPDATE accounts SET bill = 200, token = $1", int64(math.MaxInt64))
			return 100, err
		},
	})
	_, err := client.Insert(t.Context(), jobs.BillArgs{Account: "42"}, nil)
	require.NoError(t, err)
	patience.Until(t, "it has failed", func() bool {
		var why string
		return pool.QueryRow(t.Context(), "SELECT errors[1]->>'error' FROM river_job WHERE errors IS NOT NULL").Scan(&why) == nil &&
			assert.Contains(t, why, fence.ErrStale.Error())
	})
	assert.Equal(t, 200, billed(t, pool))
}

// The options of an Insert do what they say, also for one that comes from a leader of River's that
// was stopped.
func TestInsertOpts(t *testing.T) {
	t.Parallel()
	pool := connectPostgres(t, accounts(t))
	c := work(t, pool, nil)
	for name, opts := range map[string]*river.InsertOpts{"queued": jobs.OncePerAccount, "each hour": jobs.OncePerHour} {
		args := jobs.BillArgs{Account: name}
		for i := range 2 {
			at := *opts
			at.ScheduledAt = time.Now().Add(24 * time.Hour).Truncate(time.Hour)
			result, err := c.Insert(t.Context(), args, &at)
			require.NoError(t, err)
			assert.Equal(t, i == 1, result.UniqueSkippedAsDuplicate, name)
		}
	}
	done, err := pool.Exec(t.Context(), "UPDATE river_job SET state = 'completed', finalized_at = now()")
	require.NoError(t, err)
	require.EqualValues(t, 2, done.RowsAffected())
	result, err := c.Insert(t.Context(), jobs.BillArgs{Account: "queued"}, jobs.OncePerAccount)
	require.NoError(t, err)
	assert.False(t, result.UniqueSkippedAsDuplicate, "the one before is done")
	assert.Equal(t, rivertype.JobStateAvailable, result.Job.State)
}

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

// Two processes that both lead, as after one that was stopped has woken: no report is made twice.
func TestTicks_eachComesOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	at := asynq.RedisClientOpt{Addr: s.Addr()}
	var mu sync.Mutex
	reports := map[string]int{}
	serve(t, at, asynq.Config{}, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		reports[id]++
		return nil
	}))
	made := func() int { mu.Lock(); defer mu.Unlock(); return len(reports) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var both sync.WaitGroup
	for _, name := range []string{"one", "another"} {
		client := asynq.NewClient(at)
		t.Cleanup(func() { _ = client.Close() })
		e := election.New(open(t, s.URL()+"?prefix=ticks"), name)
		both.Go(func() { _ = jobs.Ticks(ctx, e, client, "report", 500*time.Millisecond) })
		patience.Until(t, "it leads", e.IsLeader)
	}
	before := made()
	patience.Until(t, "both enqueue ticks", func() bool { return made() > before+2 })
	stop()
	both.Wait()
	mu.Lock()
	defer mu.Unlock()
	for id, n := range reports {
		assert.Equal(t, 1, n, id)
	}
}

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

const patience = testwait.Patience(time.Minute)

func open(t testing.TB, url string) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url))(t)
}

func connect(t testing.TB, address string) *redis.Client {
	t.Helper()
	return testwait.Closed(redis.NewClient(&redis.Options{Addr: address}), nil)(t)
}

// serve processes tasks until t ends.
func serve(t testing.TB, at asynq.RedisClientOpt, cfg asynq.Config, h asynq.Handler) {
	t.Helper()
	cfg.Concurrency, cfg.LogLevel, cfg.ShutdownTimeout = 4, asynq.FatalLevel, time.Second
	cfg.DelayedTaskCheckInterval = 100 * time.Millisecond
	server := asynq.NewServer(at, cfg)
	require.NoError(t, server.Start(h))
	t.Cleanup(server.Shutdown)
}

func enqueue(t testing.TB, at asynq.RedisClientOpt, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	t.Helper()
	c := asynq.NewClient(at)
	defer c.Close()
	return c.EnqueueContext(t.Context(), task, opts...)
}
