//go:build unix

package filefence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/test/testwait"
)

// writer is a process that writes, and can be stopped and killed.
type writer struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startWriter(t *testing.T, name string, token uint64, stop step) *writer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = writerEnv(name, token, stop), os.Stderr
	stdio.OwnGroup(cmd)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w := &writer{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(w.kill)
	return w
}

// says returns the words of the writer's next line, which begins with what, without that.
func (w *writer) says(what string) []string {
	w.t.Helper()
	impatient := time.AfterFunc(patience, func() { _ = stdio.KillGroup(w.cmd.Process) })
	defer impatient.Stop()
	line, err := w.out.ReadString('\n')
	require.NoError(w.t, err)
	words := strings.Fields(line)
	require.Equal(w.t, what, words[0], line)
	return words[1:]
}

func (w *writer) stop() {
	w.t.Helper()
	require.NoError(w.t, stdio.StopGroup(w.cmd.Process))
}

// goOn has a writer go on that was stopped while it waited for that.
func (w *writer) goOn() {
	w.t.Helper()
	_, err := io.WriteString(w.in, "go on\n")
	require.NoError(w.t, err)
	require.NoError(w.t, stdio.ContinueGroup(w.cmd.Process))
}

func (w *writer) kill() {
	if w.cmd.ProcessState == nil {
		_ = stdio.KillGroup(w.cmd.Process)
		_ = w.cmd.Wait()
	}
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
			assert.Equal(t, []string{string(c.at)}, w.says("at"))
			w.kill()
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
	w.says("at")
	w.stop()
	require.NoError(t, writeToken(testwait.Context(t, patience), name, 34), "one who has no lock is no obstacle")
	w.goOn()
	assert.Equal(t, []string{"33", "false", "true"}, w.says("wrote"))
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
			w.says("at")
			w.stop()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*pause, errors.New("had enough"))
			defer cancel()
			require.ErrorContains(t, writeToken(ctx, name, 34), "wait for the lock on "+name+".fence.lock: had enough")
			hasToken(t, name, 32)

			next := testwait.Go(func() error { return writeToken(testwait.Context(t, patience), name, 34) })
			w.goOn()
			assert.Equal(t, []string{"33", "true", "false"}, w.says("wrote"))
			require.NoError(t, testwait.Patience(patience).Result(t, next))
			hasToken(t, name, 34)
			isTidy(t, name)
		})
	}
}
