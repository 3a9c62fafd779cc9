//go:build unix

package jobs_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/jobs"
	"github.com/go-locker/locker/election"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func init() {
	child.Register("ticks", ticks)
}

const ttl = "&ttl=3s"

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
