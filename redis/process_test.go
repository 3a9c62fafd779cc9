//go:build unix

package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/redis"
)

func init() { child = runChild }

// runChild is what a process of its own does, for the tests below. It ends with its standard input.
func runChild(mode string) int {
	in := bufio.NewReader(os.Stdin)
	rdb := goredis.NewClient(&goredis.Options{Addr: os.Getenv("LOCKER_REDIS_ADDR")})
	ttl, err := time.ParseDuration(os.Getenv("LOCKER_REDIS_TTL"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := redis.New(rdb, locker.WithTTL(ttl), locker.WithBackoff(time.Millisecond, 5*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	work := map[string]func(context.Context, *locker.Mutex, *goredis.Client, *bufio.Reader) error{
		"count": countUnderLock, "hold": holdUntilAsked,
	}[mode]
	if err := work(context.Background(), c.Mutex("shared"), rdb, in); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	if err := c.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// countUnderLock adds one to a counter by a read and a write, again and again for 2 s, and has the
// resource record the tokens that it sees.
func countUnderLock(ctx context.Context, m *locker.Mutex, rdb *goredis.Client, _ *bufio.Reader) error {
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
func holdUntilAsked(ctx context.Context, m *locker.Mutex, _ *goredis.Client, in *bufio.Reader) error {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	fmt.Println("held", m.FencingToken())
	_, err := in.ReadString('\n')
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
	fmt.Println("believes", lost, token, errors.Is(m.Unlock(ctx), locker.ErrLost))
	return nil
}

type childProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func startChild(t *testing.T, mode, addr string, ttl time.Duration) *childProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCKER_REDIS_CHILD="+mode, "LOCKER_REDIS_ADDR="+addr, "LOCKER_REDIS_TTL="+ttl.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &childProcess{t, cmd, stdin, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// says returns the next line of the child, which must begin with what, without it.
func (p *childProcess) says(what string) []string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), what+" ")
	require.True(p.t, ok, "the child said %q, want %s", line, what)
	return strings.Fields(rest)
}

func TestProcesses_excludeEachOtherAndTokensRise(t *testing.T) {
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	var children []*childProcess
	for range 4 {
		children = append(children, startChild(t, "count", s.Addr(), 10*time.Second))
	}
	total := 0
	for i, p := range children {
		n, err := strconv.Atoi(p.says("done")[0])
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
	const ttl = 600 * time.Millisecond
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	token, err := strconv.ParseUint(p.says("held")[0], 10, 64)
	require.NoError(t, err)
	m := newClient(t, s.Addr(), locker.WithTTL(ttl), locker.WithBackoff(tick, 10*tick)).Mutex("shared")
	require.ErrorIs(t, m.Lock(withTimeout(t, 2*ttl)), locker.ErrHeld, "it renews")
	require.NoError(t, p.cmd.Process.Kill())
	killed := time.Now()
	require.NoError(t, m.Lock(withTimeout(t, patient)))
	assert.Less(t, time.Since(killed), ttl+200*time.Millisecond)
	assert.Greater(t, m.FencingToken(), token)
	assert.NoError(t, m.Unlock(t.Context()))
}

func TestProcesses_aHolderThatWasStoppedPastItsTTLKnowsThatItLost(t *testing.T) {
	const ttl = 400 * time.Millisecond
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	old, err := strconv.ParseUint(p.says("held")[0], 10, 64)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	m := newClient(t, s.Addr(), locker.WithBackoff(tick, 10*tick)).Mutex("shared")
	require.NoError(t, m.Lock(withTimeout(t, patient)))
	assert.Less(t, time.Since(stopped), ttl+200*time.Millisecond)
	assert.Greater(t, m.FencingToken(), old)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	_, err = io.WriteString(p.stdin, "well?\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"true", "0", "true"}, p.says("believes"), "lost, token, ErrLost from Unlock")
	require.NoError(t, m.Extend(t.Context()), "the new hold is left alone")
	require.NoError(t, m.Unlock(t.Context()))
}
