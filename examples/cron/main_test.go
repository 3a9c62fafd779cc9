package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const patience = testwait.Patience(30 * time.Second)

var runs = regexp.MustCompile(`(\S+) runs, under token`)

// ticks are those that have run, as the processes say.
func ticks(said string) (ticks []string) {
	for _, run := range runs.FindAllStringSubmatch(said, -1) {
		ticks = append(ticks, run[1])
	}
	return ticks
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := settings{every: 500 * time.Millisecond, takes: time.Millisecond, out: &out}
	require.NoError(t, s.demo(t.Context(), "mem://"+t.Name()))
	assertEachOnce(t, out.String())
	assert.NotEmpty(t, ticks(out.String()))
}

func assertEachOnce(t *testing.T, said string) {
	t.Helper()
	all := map[string]int{}
	for _, tick := range ticks(said) {
		all[tick]++
		assert.Equal(t, 1, all[tick], "%s, in:\n%s", tick, said)
	}
}

func TestProcesses_onRedis(t *testing.T) { t.Parallel(); together(t, testserver.Redis(t).URL()) }

// together has three processes run a job whose clocks differ, and stops them in order.
func together(t *testing.T, url string) {
	t.Helper()
	dir := t.TempDir()
	program, file := filepath.Join(dir, "cron.exe"), filepath.Join(dir, "record")
	build, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	misplaced, err := exec.CommandContext(t.Context(), program, "mem://x", "-every=1s").CombinedOutput()
	require.Error(t, err, "a flag that would be ignored")
	assert.Contains(t, string(misplaced), "flags come before the URL")

	var ps [3]*exec.Cmd
	var out [3]bytes.Buffer
	for i, skew := range []string{"0s", "70ms", "-120ms"} {
		p := exec.CommandContext(t.Context(), program, "-every=200ms", "-takes=1ms", "-skew="+skew, "-record="+file, url)
		p.Stdout, p.Stderr = &out[i], &out[i]
		require.NoError(t, p.Start())
		ps[i] = p
	}
	done, last := 0, ""
	patience.Until(t, "ten ticks on record", func() bool {
		text, err := os.ReadFile(file) // which is replaced in one step
		if err == nil && string(text) != last {
			done++
			last = string(text)
		}
		return done == 10
	})
	for i, p := range ps {
		require.NoError(t, p.Process.Signal(os.Interrupt))
		require.NoError(t, p.Wait(), "%s", &out[i])
	}
	all := out[0].String() + out[1].String() + out[2].String()
	assertEachOnce(t, all)
	assert.GreaterOrEqual(t, len(ticks(all)), 10, "%s", all)
}
