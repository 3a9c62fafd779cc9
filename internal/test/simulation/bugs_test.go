package simulation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// seedsForABug are as many as it takes to find the rarest.
const seedsForABug = 2000

var failedSeed = regexp.MustCompile(`(?m)seed (\d+) \(`)

// TestBugs_areFound puts each bug back into the core, and requires that a seed finds it.
func TestBugs_areFound(t *testing.T) {
	testwait.OnlyNightly(t, "it compiles the core once for each bug")
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, b := range Bugs {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			if b.missed != "" {
				t.Skip(b.missed)
			}
			file, dir := filepath.Join(root, b.File), t.TempDir()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), b.Old), "the line in %s is another now", b.File)
			changed := filepath.Join(dir, b.File)
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), b.Old, b.New, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
			program := filepath.Join(dir, "simulation.test")
			out, err := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-c", "-o", program, ".").CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = exec.Command(program, "-test.run=^TestSeeds$", "-test.timeout=20m", "-seeds", strconv.Itoa(seedsForABug), "-first", strconv.FormatUint(max(b.first, 1), 10)).CombinedOutput()
			require.Error(t, err, "no seed finds it")
			if found := failedSeed.FindSubmatchIndex(out); found != nil {
				line, _, _ := strings.Cut(string(out[found[0]:]), "\n")
				t.Logf("found by %s", line)
				return
			}
			assert.Regexp(t, "panic:|deadlock|test timed out", string(out))
		})
	}
}
