package filefence

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/go-locker/locker/fence"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(envFile) != "" {
		runWriter()
		return
	}
	goleak.VerifyTestMain(m)
}

// A test binary whose environment has envFile is the process of a writer. The rest are its orders.
const (
	envFile  = "LOCKER_FENCE_FILE"
	envToken = "LOCKER_FENCE_TOKEN"
	envStop  = "LOCKER_FENCE_STOP" // the step at which it waits for the order to go on
)

// writerEnv is the environment of a writer's process.
func writerEnv(name string, token uint64, stop step) []string {
	return append(os.Environ(), envFile+"="+name, fmt.Sprintf("%s=%d", envToken, token), envStop+"="+string(stop))
}

// runWriter runs in the process of a writer.
func runWriter() {
	token, err := strconv.ParseUint(os.Getenv(envToken), 10, 64)
	if err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	content := strings.NewReader(strings.Repeat(fmt.Sprintln(token), lines))
	err = replace(context.Background(), os.Getenv(envFile), token, content, 0o644, func(at step) {
		if string(at) == os.Getenv(envStop) {
			fmt.Println("at", at)
			in.Scan()
		}
	})
	fmt.Println("wrote", token, err == nil, errors.Is(err, fence.ErrStale))
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
