package filefence

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No test can cut the power. So this one looks at what is asked of the kernel, and in which order.
func TestWrite_isOnDiskStepByStep(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace, which shows the order of fsync and rename, is not installed")
	}
	name := written(t, 33, "old")
	log := filepath.Join(t.TempDir(), "strace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-y", "-s", "4096", "-e", "trace=fsync,rename,renameat,renameat2", "-o", log,
		"--", os.Args[0])
	cmd.Env = writerEnv(name, 34, "")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "wrote") {
		t.Skipf("strace may not trace here: %s", out)
	}
	require.NoError(t, err, string(out))
	trace, err := os.ReadFile(log)
	require.NoError(t, err)

	var done []string
	call := regexp.MustCompile(`(fsync|rename)[a-z0-9]*\(.*`)
	path := regexp.MustCompile(regexp.QuoteMeta(filepath.Dir(name)) + `[^">,]*`)
	for line := range strings.SplitSeq(string(trace), "\n") {
		c := call.FindStringSubmatch(line)
		if c == nil || strings.Contains(line, "resumed>") {
			continue
		}
		paths := path.FindAllString(c[0], -1)
		if len(paths) == 0 {
			continue // elsewhere, as that of a test binary which writes down what it has covered
		}
		words := c[1:2]
		for _, p := range paths {
			words = append(words, strings.TrimPrefix(p, filepath.Dir(name)))
		}
		done = append(done, strings.Join(words, " "))
	}
	assert.Equal(t, []string{
		"fsync /config.json.fence.data",
		"fsync /config.json.fence.new",
		"rename /config.json.fence.new /config.json.fence",
		"fsync ", // the directory: the token is seen before there is anything to see
		"rename /config.json.fence.data /config.json",
		"fsync ",
	}, done)
}
