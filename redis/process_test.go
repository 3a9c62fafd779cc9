//go:build unix

package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/child"
	"github.com/go-locker/locker/internal/stopwatch"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/redis"
)

// What a process of its own is to do is in its environment, and when on its standard input.
const (
	childDoes = "LOCKER_REDIS_CHILD"
	childAddr = "LOCKER_REDIS_ADDR"
	childTTL  = "LOCKER_REDIS_TTL"
)

func init() { child.Register("child", runChild) }

// runChild is what the processes of the tests below do.
func runChild(t testing.TB) {
	does, n, _ := strings.Cut(os.Getenv(childDoes), " ")
	do := map[string]func(childSide) error{"count": countUnderLock, "hold": holdUntilAsked, "wait": waitInQueue}[does]
	require.NotNil(t, do, does)
	ttl, err := time.ParseDuration(os.Getenv(childTTL))
	require.NoError(t, err)
	rdb := connect(t, os.Getenv(childAddr))
	c, err := redis.New(rdb, locker.WithTTL(ttl), locker.WithBackoff(time.Millisecond, 5*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, do(childSide{t.Context(), c, rdb, n, bufio.NewReader(os.Stdin)}))
	require.NoError(t, c.Close())
}

type childSide struct {
	ctx    context.Context
	client *locker.Client
	rdb    *goredis.Client
	n      string
	in     *bufio.Reader
}

// countUnderLock adds one to a counter by a read and a write, again and again for 2 s, and has the
// resource record the tokens that it sees.
func countUnderLock(c childSide) error {
	ctx, rdb, m := c.ctx, c.rdb, c.client.Mutex("shared")
	n := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); n++ {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		count, err := rdb.Get(ctx, "counter").Int()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		if err := rdb.Set(ctx, "counter", count+1, 0).Err(); err != nil {
			return err
		}
		if err := rdb.RPush(ctx, "tokens", m.FencingToken()).Err(); err != nil {
			return err
		}
		if err := m.Unlock(ctx); err != nil {
			return err
		}
	}
	fmt.Println("done", n)
	return nil
}

// holdUntilAsked holds, and reports in the end what it believes.
func holdUntilAsked(c childSide) error {
	m := c.client.Mutex("shared")
	if err := m.Lock(c.ctx); err != nil {
		return err
	}
	fmt.Println("held", m.FencingToken())
	_, err := c.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return errors.New("the parent is gone")
	}
	lost := false
	select {
	case <-m.Lost():
		lost = true
	case <-time.After(2 * time.Second):
	}
	token := m.FencingToken()
	fmt.Println("believes", lost, token, errors.Is(m.Unlock(c.ctx), locker.ErrLost))
	return nil
}

func startChild(t *testing.T, does, addr string, ttl time.Duration) *child.Process {
	t.Helper()
	return child.Start(t, "child", childDoes+"="+does, childAddr+"="+addr, childTTL+"="+ttl.String())
}

func TestProcesses_excludeEachOtherAndTokensRise(t *testing.T) {
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	var children []*child.Process
	for range 4 {
		children = append(children, startChild(t, "count", s.Addr(), 10*time.Second))
	}
	total := 0
	for i, p := range children {
		n, err := strconv.Atoi(p.Says("done")[0])
		require.NoError(t, err)
		assert.Positive(t, n, "process %d", i)
		total += n
	}
	count, err := rdb.Get(t.Context(), "counter").Int()
	require.NoError(t, err)
	assert.Equal(t, total, count, "an update was lost: two held at once")
	tokens, err := rdb.LRange(t.Context(), "tokens", 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, tokens, total)
	last := uint64(0)
	for i, text := range tokens {
		token, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, last, "hold %d of %d", i, total)
		last = token
	}
	t.Logf("%d holds by 4 processes in 2 s", total)
}

func TestProcesses_aKilledHoldersLockIsFreeWithinItsTTL(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	token, err := strconv.ParseUint(p.Says("held")[0], 10, 64)
	require.NoError(t, err)
	m := newClient(t, s.Addr(), locker.WithTTL(ttl), locker.WithBackoff(tick, 10*tick)).Mutex("shared")
	require.ErrorIs(t, m.Lock(withTimeout(t, 2*ttl)), locker.ErrHeld, "it renews")
	p.Kill()
	elapsed := stopwatch.Start(t)
	require.NoError(t, m.Lock(withTimeout(t, patient)))
	assert.Less(t, elapsed(), ttl+200*time.Millisecond)
	assert.Greater(t, m.FencingToken(), token)
	assert.NoError(t, m.Unlock(t.Context()))
}

func TestProcesses_aHolderThatWasStoppedPastItsTTLKnowsThatItLost(t *testing.T) {
	const ttl = 2 * time.Second
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	old, err := strconv.ParseUint(p.Says("held")[0], 10, 64)
	require.NoError(t, err)
	p.Stop()
	elapsed := stopwatch.Start(t)
	m := newClient(t, s.Addr(), locker.WithBackoff(tick, 10*tick)).Mutex("shared")
	require.NoError(t, m.Lock(withTimeout(t, patient)))
	assert.Less(t, elapsed(), ttl+200*time.Millisecond)
	assert.Greater(t, m.FencingToken(), old)
	p.Continue()
	p.Tell("well?")
	assert.Equal(t, []string{"true", "0", "true"}, p.Says("believes"), "lost, token, ErrLost from Unlock")
	require.NoError(t, m.Extend(t.Context()), "the new hold is left alone")
	require.NoError(t, m.Unlock(t.Context()))
}
