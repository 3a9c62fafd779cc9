package filefence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testwait"
)

const resource = "/orders/42"

func nothing(context.Context) error { return nil }

func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("what was refused is written")
		return nil
	}
}

func TestDir_keepsTheRule(t *testing.T) {
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		dir := t.TempDir()
		return fencecheck.Of(Dir(dir), resource, func(_ context.Context, text string) error {
			tokens, _ := filepath.Glob(filepath.Join(dir, "*.fence"))
			return os.WriteFile(tokens[0], []byte(text+"\n"), 0o600)
		})
	})
}

func TestDir_hasSeenTheTokenBeforeTheWrite(t *testing.T) {
	dir := Dir(t.TempDir())
	failed := errors.New("half of it is written")
	err := dir.Write(t.Context(), resource, 34, func(context.Context) error {
		tokens, err := filepath.Glob(filepath.Join(string(dir), "*.fence"))
		require.NoError(t, err)
		require.Len(t, tokens, 1)
		has(t, tokens[0], "34\n")
		return failed
	})
	assert.Same(t, failed, err)
	require.ErrorIs(t, dir.Write(t.Context(), resource, 33, never(t)), fence.ErrStale)

	assert.PanicsWithValue(t, "as it was", func() {
		_ = dir.Write(t.Context(), resource, 35, func(context.Context) error { panic("as it was") })
	})
	ctx := testwait.Context(t, patience)
	require.ErrorIs(t, dir.Write(ctx, resource, 34, never(t)), fence.ErrStale)
	require.NoError(t, dir.Write(ctx, resource, 35, nothing))
}

func TestDir_missesATokenThatWasDeleted(t *testing.T) {
	dir := Dir(t.TempDir())
	require.NoError(t, dir.Write(t.Context(), resource, 34, nothing))
	tokens, err := filepath.Glob(filepath.Join(string(dir), "*.fence"))
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	has(t, strings.TrimSuffix(tokens[0], ".fence"), resource+"\n")
	require.NoError(t, os.Remove(tokens[0]))
	err = dir.Write(t.Context(), resource, 33, never(t))
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, `"/orders/42"`)
	require.ErrorContains(t, err, tokens[0])
}

// Whatever two resources are called: what the Dir keeps of each is in its directory, by itself.
func TestDir_keepsEachNameByItself(t *testing.T) {
	for _, names := range [][2]string{
		{resource, "/orders/42/"},
		{"", " "},
		{"../other", "other"},
		{"a", "A"},
		{"a\x00b", "a"},
		{"\xff", "\xfe"},
		{"a.fence", "a"},
		{strings.Repeat("x", 5000), strings.Repeat("x", 5001)},
	} {
		outside := t.TempDir()
		dir := filepath.Join(outside, "fences")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, Dir(dir).Write(t.Context(), names[0], 34, nothing), "%q", names)
		require.NoError(t, Dir(dir).Write(t.Context(), names[1], 33, nothing), "%q", names)
		require.ErrorIs(t, Dir(dir).Write(t.Context(), names[0], 33, never(t)), fence.ErrStale, "%q", names)
		all, _ := filepath.Glob(filepath.Join(outside, "*"))
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		assert.Len(t, all, 1, "%q", names)
		assert.Len(t, files, 2*3, "%q", names)
	}
}

func TestDir_hasToExist(t *testing.T) {
	missing := Dir(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, missing.Write(t.Context(), resource, 1, never(t)), fs.ErrNotExist)
	assert.NoDirExists(t, string(missing))
	require.ErrorContains(t, Dir("").Write(t.Context(), resource, 1, never(t)), "has no name")
}
