package filefence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The content is what was there, and one more line.
func TestWrite_keepsTheRule(t *testing.T) {
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		name := filepath.Join(t.TempDir(), "config.json")
		return fencecheck.Fence{
			Write: func(ctx context.Context, token uint64) error {
				var content io.Reader
				return WriteFrom(ctx, name, token, readerFunc(func(p []byte) (int, error) {
					if content == nil {
						old, _ := os.ReadFile(name)
						content = strings.NewReader(fmt.Sprintln(string(old) + strconv.FormatUint(token, 10)))
					}
					return content.Read(p)
				}), 0o644)
			},
			History: func(context.Context) (history []uint64, err error) {
				content, err := os.ReadFile(name)
				for line := range strings.Lines(string(content)) {
					token, parseErr := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
					history, err = append(history, token), errors.Join(err, parseErr)
				}
				return history, err
			},
			Spoil: func(_ context.Context, text string) error {
				return os.WriteFile(name+".fence", []byte(text+"\n"), 0o644)
			},
		}
	})
}

func TestWriteFrom_aReaderThatFailsLeavesTheFileAndTheToken(t *testing.T) {
	name := written(t, 33, "old")
	torn := errors.New("connection reset")
	err := WriteFrom(t.Context(), name, 34, io.MultiReader(strings.NewReader("ne"), iotest.ErrReader(torn)), 0o644)
	require.ErrorIs(t, err, torn)
	has(t, name, "old")
	has(t, name+".fence", "33\n")
	isTidy(t, name)

	assert.PanicsWithValue(t, "reader", func() {
		_ = WriteFrom(t.Context(), name, 34, readerFunc(func([]byte) (int, error) { panic("reader") }), 0o644)
	})
	has(t, name, "old")
	isTidy(t, name)
	require.NoError(t, Write(testwait.Context(t, patience), name, 34, []byte("new"), 0o644), "the next has its turn")
}

func TestWriteFrom_ctxEndsWhileItReads(t *testing.T) {
	name := written(t, 33, "old")
	ctx, cancel := context.WithCancelCause(t.Context())
	lost := errors.New("the lock was lost")
	err := WriteFrom(ctx, name, 34, readerFunc(func([]byte) (int, error) {
		cancel(lost)
		return 0, io.EOF
	}), 0o644)
	require.ErrorIs(t, err, lost)
	has(t, name, "old")
	has(t, name+".fence", "33\n")
	isTidy(t, name)
}

func TestWrite_takesOverAFileOnlyWhenTold(t *testing.T) {
	name := in(t)
	require.NoError(t, os.WriteFile(name, []byte("not fenced"), 0o644))
	err := Write(t.Context(), name, 34, []byte("new"), 0o644)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, name+".fence is missing")
	has(t, name, "not fenced")

	require.NoError(t, os.WriteFile(name+".fence", []byte("34\r\n"), 0o644)) // as echo on Windows has it
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("stale"), 0o644), fence.ErrStale)
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
	has(t, name, "new")
}

func TestWrite_remembersTheTokenOfAFileThatWasDeleted(t *testing.T) {
	name := written(t, 34, "old")
	require.NoError(t, os.Remove(name))
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("stale"), 0o644), fence.ErrStale)
	assert.NoFileExists(t, name)
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
}

func TestWrite_refusesWhatIsNoFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"", dir, filepath.Join(dir, "missing", "x"),
		filepath.Join(dir, "x.fence"), filepath.Join(dir, "x.fence.lock"), filepath.Join(dir, "x.fence.data"), filepath.Join(dir, "x.fence.new"),
	} {
		require.ErrorContains(t, Write(t.Context(), name, 1, []byte("x"), 0o644), "filefence: ", name)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRead_showsItsToken(t *testing.T) {
	name := written(t, 33, "old")
	data, err := Read(t.Context(), name, 34, 0o644)
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("late"), 0o644), fence.ErrStale, "what was read stays as it is")
	_, err = Read(t.Context(), name, 33, 0o644)
	require.ErrorIs(t, err, fence.ErrStale)
	_, err = Read(t.Context(), name, 0, 0o644)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
	has(t, name, "new")
	isTidy(t, name)
	require.NoError(t, os.MkdirAll(name+".fence.new/in the way", 0o700))
	_, err = Read(t.Context(), name, 35, 0o644)
	require.Error(t, err, "its token cannot be recorded")
}

func TestRead_ofAFileThatIsNotThereShowsItsTokenToo(t *testing.T) {
	name := in(t)
	data, err := Read(t.Context(), name, 34, 0o600)
	require.NoError(t, err)
	assert.Nil(t, data)
	require.ErrorIs(t, Write(t.Context(), name, 33, []byte("late"), 0o600), fence.ErrStale)
	assert.NoFileExists(t, name)
	info, err := os.Stat(name + ".fence")
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)

	require.NoError(t, Write(t.Context(), name, 34, nil, 0o600))
	data, err = Read(t.Context(), name, 34, 0o600)
	require.NoError(t, err)
	assert.NotNil(t, data, "it is there, and empty")

	_, err = Read(t.Context(), filepath.Join(name+".d", "x"), 34, 0o600)
	require.ErrorIs(t, err, fs.ErrNotExist, "nor is there a directory in which the token could be seen")
}

// Whatever has become of the file of the token: it is a token on a line, or an error.
func FuzzToken(f *testing.F) {
	for _, content := range []string{
		"34\n", "34\r\n", "34", "", "\n", "0\n", "034\n", "+34\n", "-34\n", " 34\n", "34 \n", "3 4\n", "34\n\n", "34\n35\n", "34\r\r\n", "0x22\n", "1_0\n",
		"18446744073709551615\n", "18446744073709551615\r\n", "18446744073709551616\n", "00000000000000000000034\n", "\x0034\n", "３４\n",
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		c := file{filepath.Join(t.TempDir(), "file"), resource}
		if err := os.WriteFile(c.token(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		newest, err := c.newest()
		digits := strings.TrimLeft(strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r"), "0")
		switch {
		case err == nil && (!strings.HasSuffix(content, "\n") || digits != strings.TrimLeft(strconv.FormatUint(newest, 10), "0")):
			t.Errorf("%q is taken for %d", content, newest)
		case err != nil && !errors.Is(err, fence.ErrUnknown):
			t.Errorf("%q: %v", content, err)
		}
	})
}

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
