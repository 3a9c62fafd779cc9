package filefence

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/test/child"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	child.Serve()
	goleak.VerifyTestMain(m)
}

// in is the path of a file in a directory of its own, which does not exist yet.
func in(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "config.json")
}

// written is the path of a file that was written with token.
func written(t *testing.T, token uint64, content string) string {
	t.Helper()
	name := in(t)
	require.NoError(t, Write(t.Context(), name, token, []byte(content), 0o644))
	return name
}

func has(t *testing.T, name, content string) {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, content, string(b), name)
}

// isTidy fails if more than what belongs there is beside the file.
func isTidy(t *testing.T, name string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	base := filepath.Base(name)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), base)
		assert.True(t, ours && (rest == "" || rest == tokenSuffix || rest == lockSuffix), "left over: %s", e.Name())
	}
}

// lines is how often a content says its token: enough for several writes of the system's.
const lines = 20000

// writeToken writes a content that tells by which token it was written, and whether it is whole.
func writeToken(ctx context.Context, name string, token uint64) error {
	return Write(ctx, name, token, []byte(strings.Repeat(strconv.FormatUint(token, 10)+"\n", lines)), 0o644)
}

// tokenIn is by which token the content was written.
func tokenIn(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if string(b) != strings.Repeat(line+"\n", lines) {
		return 0, fmt.Errorf("%s is not whole: %d bytes", name, len(b))
	}
	return strconv.ParseUint(line, 10, 64)
}
