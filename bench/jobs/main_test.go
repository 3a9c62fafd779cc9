package jobs_test

import (
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) {
	child.Serve()
	os.Exit(testserver.Tests(m).Run())
}

const patience = testwait.Patience(time.Minute)

// What a child process is told.
const (
	envLocks = "LOCKER_JOBS_LOCKS"
	envQueue = "LOCKER_JOBS_QUEUE" // where the queue is
)

func open(t testing.TB, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func connect(t testing.TB, address string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
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
