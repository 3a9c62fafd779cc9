//go:build unix

package filefence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The environment of a writer's process has its orders.
const (
	envFile  = "LOCKER_FENCE_FILE"
	envToken = "LOCKER_FENCE_TOKEN"
	envStop  = "LOCKER_FENCE_STOP" // the step at which it waits for the order to go on
)

func init() { child.Register("writer", runWriter) }

// runWriter runs in the process of a writer.
func runWriter(t testing.TB) {
	name := os.Getenv(envFile)
	token, err := strconv.ParseUint(os.Getenv(envToken), 10, 64)
	require.NoError(t, err)
	in := bufio.NewScanner(os.Stdin)
	content := strings.NewReader(strings.Repeat(fmt.Sprintln(token), lines))
	err = replace(context.Background(), name, token, content, 0o644, func(at step) {
		if string(at) == os.Getenv(envStop) {
			fmt.Println("at", at)
			in.Scan()
		}
	})
	fmt.Println("wrote", token, err == nil, errors.Is(err, fence.ErrStale))
}

func startWriter(t *testing.T, name string, token uint64, stop step) *child.Process {
	t.Helper()
	return child.Start(t, "writer", envFile+"="+name, fmt.Sprintf("%s=%d", envToken, token), envStop+"="+string(stop))
}

func hasToken(t *testing.T, name string, token uint64) {
	t.Helper()
	found, err := tokenIn(name)
	require.NoError(t, err)
	assert.Equal(t, token, found)
}

// Whatever has been done when a writer is killed: the file is whole, and its token is seen.
func TestKill_atEachStep(t *testing.T) {
	for _, c := range []struct {
		at             step
		content, token uint64
	}{{arrived, 33, 33}, {checked, 33, 33}, {staged, 33, 33}, {raised, 33, 34}, {renamed, 34, 34}} {
		t.Run(string(c.at), func(t *testing.T) {
			t.Parallel()
			name := in(t)
			require.NoError(t, writeToken(t.Context(), name, 33))
			w := startWriter(t, name, 34, c.at)
			assert.Equal(t, []string{string(c.at)}, w.Says("at"))
			w.Kill()
			hasToken(t, name, c.content)
			has(t, name+".fence", fmt.Sprintln(c.token))

			ctx := testwait.Context(t, patience)
			if c.token == 34 {
				require.ErrorIs(t, writeToken(ctx, name, 33), fence.ErrStale)
			}
			require.NoError(t, writeToken(ctx, name, 34), "the same holder, once more, or the next")
			hasToken(t, name, 34)
			isTidy(t, name)
		})
	}
}

// The story that fencing is about: the holder is stopped, another one takes over and writes, the first wakes up and writes.
func TestStop_beforeTheCheck(t *testing.T) {
	name := in(t)
	w := startWriter(t, name, 33, arrived)
	w.Says("at")
	w.Stop()
	require.NoError(t, writeToken(testwait.Context(t, patience), name, 34), "one who has no lock is no obstacle")
	w.Tell("go on")
	w.Continue()
	assert.Equal(t, []string{"33", "false", "true"}, w.Says("wrote"))
	hasToken(t, name, 34)
}

// Between its check and its rename nobody can get in. Who tries waits as long as it cares to.
func TestStop_betweenTheCheckAndTheRename(t *testing.T) {
	for _, at := range []step{checked, staged, raised} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			name := in(t)
			require.NoError(t, writeToken(t.Context(), name, 32))
			w := startWriter(t, name, 33, at)
			w.Says("at")
			w.Stop()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*pause, errors.New("had enough"))
			defer cancel()
			require.ErrorContains(t, writeToken(ctx, name, 34), "wait for the lock on "+name+".fence.lock: had enough")
			hasToken(t, name, 32)

			next := testwait.Go(func() error { return writeToken(testwait.Context(t, patience), name, 34) })
			w.Tell("go on")
			w.Continue()
			assert.Equal(t, []string{"33", "true", "false"}, w.Says("wrote"))
			require.NoError(t, testwait.Patience(patience).Result(t, next))
			hasToken(t, name, 34)
			isTidy(t, name)
		})
	}
}
