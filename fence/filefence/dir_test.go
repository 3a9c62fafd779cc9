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
		return fencecheck.Of(Dir(dir), resource, func(context.Context) error {
			tokens, _ := filepath.Glob(filepath.Join(dir, "*.fence"))
			return os.WriteFile(tokens[0], []byte("no token\n"), 0o600)
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

func TestDir_hasToExist(t *testing.T) {
	missing := Dir(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, missing.Write(t.Context(), resource, 1, never(t)), fs.ErrNotExist)
	assert.NoDirExists(t, string(missing))
	require.ErrorContains(t, Dir("").Write(t.Context(), resource, 1, never(t)), "has no name")
}
