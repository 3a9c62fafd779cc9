package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience(30 * time.Second)

func TestTell(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, newStory(&out).tell(t.Context(), "mem://"+t.Name()))
	rest := out.String()
	for _, step := range []string{
		"web-1  leads, with token", "is cut off", "web-1  leads no more",
		"leads, with token", "is told to stop", "leads no more", "context canceled",
		"leads, with token", "is told to stop", "leads no more", "context canceled",
	} {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "want %q, in this order, in:\n%s", step, out.String())
		rest = after
	}
}

func TestTell_endsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	_ = newStory(&out).tell(ctx, "mem://"+t.Name())
	assert.NotContains(t, out.String(), "leads, with")
}

func TestTell_saysWhatIsWrongWithTheURL(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, newStory(&strings.Builder{}).tell(t.Context(), "none://"), "none")
}

func TestProcesses_onRedis(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ps := takeOver(t, s.URL()+"?ttl=2s")
	// The server has lost all its data, and with them the lock: who led is told so, and one of them leads again.
	led := strings.Count(ps.said(), "leads, with")
	s.Do("FLUSHALL")
	ps.until(t, "one that has lost the lock", func() bool { return strings.Contains(ps.said(), "the lock was lost") })
	ps.until(t, "another leader", func() bool { return strings.Count(ps.said(), "leads, with") > led })
}

// takeOver has three processes campaign: the first leader is killed, the second is stopped in order. The third is still
// there when it returns.
func takeOver(t *testing.T, url string) processes {
	t.Helper()
	ps := start(t, url, 3)
	first := ps.leader(t, 1)
	require.NoError(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait()
	second := ps.leader(t, 2)
	assert.NotSame(t, first, second)
	require.NoError(t, second.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, second.cmd.Wait(), "%s", second)
	assert.Contains(t, second.String(), "leads no more")
	third := ps.leader(t, 3)
	assert.NotSame(t, second, third)
	return ps
}

// candidateProcess is the program, built and run.
type candidateProcess struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *candidateProcess) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *candidateProcess) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

type processes []*candidateProcess

func start(t *testing.T, url string, n int) (ps processes) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "leader.exe")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	misplaced, err := exec.CommandContext(t.Context(), program, "mem://x", "-id=x").CombinedOutput()
	require.Error(t, err, "a flag that would be ignored")
	assert.Contains(t, string(misplaced), "flags come before the URL")
	for range n {
		p := &candidateProcess{cmd: exec.CommandContext(t.Context(), program, url)}
		p.cmd.Stdout, p.cmd.Stderr = p, p
		require.NoError(t, p.cmd.Start())
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		})
		ps = append(ps, p)
	}
	return ps
}

func (ps processes) said() string {
	var all strings.Builder
	for _, p := range ps {
		all.WriteString(p.String())
	}
	return all.String()
}

func (ps processes) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(ps.said())
		}
	}()
	patience.Until(t, what, condition)
}

// leader waits for the nth term to begin, and returns whose it is.
func (ps processes) leader(t *testing.T, n int) (leader *candidateProcess) {
	t.Helper()
	ps.until(t, "another leader", func() bool { return strings.Count(ps.said(), "leads, with") == n })
	for _, p := range ps {
		if strings.Count(p.String(), "leads, with") > strings.Count(p.String(), "leads no more") && p.cmd.ProcessState == nil {
			leader = p
		}
	}
	require.NotNil(t, leader)
	return leader
}
