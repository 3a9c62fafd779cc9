//go:build unix

package filefence

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
)

func mode(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	require.NoError(t, err)
	return info.Mode()
}

func TestWrite_keepsTheMode(t *testing.T) {
	for _, kept := range []fs.FileMode{0o600, 0o640, 0o666, 0o444, 0o755, 0o644 | fs.ModeSetgid} {
		name := written(t, 33, "old")
		require.NoError(t, os.Chmod(name, kept))
		require.NoError(t, os.Chmod(name+".fence", 0o664))
		require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o604))
		assert.Equal(t, kept, mode(t, name))
		assert.Equal(t, fs.FileMode(0o664), mode(t, name+".fence"))
		has(t, name, "new")
	}
}

func TestWrite_makesAFileWithPermLessTheUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	name := in(t)
	require.NoError(t, Write(t.Context(), name, 1, []byte("new"), 0o466))
	assert.Equal(t, fs.FileMode(0o440), mode(t, name))
	assert.Equal(t, fs.FileMode(0o640), mode(t, name+".fence"), "whoever owns it can write it")
	assert.Equal(t, fs.FileMode(0o600), mode(t, name+".fence.lock"))
}

// What is staged must not be open to those whom the file is closed to.
func TestWrite_isAtNoTimeOpenToMoreThanTheFile(t *testing.T) {
	name := written(t, 33, "old")
	require.NoError(t, os.Chmod(name, 0o600))
	require.NoError(t, WriteFrom(t.Context(), name, 34, readerFunc(func([]byte) (int, error) {
		assert.Equal(t, fs.FileMode(0o600), mode(t, name+".fence.data"))
		return 0, io.EOF
	}), 0o666))
}

func TestWrite_keepsTheOwnerWhereItMay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	name := written(t, 33, "old")
	require.NoError(t, os.Chown(name, 12345, 23456))
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
	info, err := os.Stat(name)
	require.NoError(t, err)
	s := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, []uint32{12345, 23456}, []uint32{s.Uid, s.Gid})
}

func TestWrite_replacesWhatALinkLeadsTo(t *testing.T) {
	name := written(t, 33, "old")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(name, link))
	require.NoError(t, Write(t.Context(), link, 35, []byte("new"), 0o644))
	has(t, name, "new")
	require.ErrorIs(t, Write(t.Context(), name, 34, []byte("stale"), 0o644), fence.ErrStale, "a file has one token, whatever it is called")
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, name, target)
	isTidy(t, link)
	assert.NoFileExists(t, link+".fence")

	dangling := filepath.Join(t.TempDir(), "dangling")
	require.NoError(t, os.Symlink(name+"-missing", dangling))
	require.ErrorIs(t, Write(t.Context(), dangling, 1, []byte("new"), 0o644), fs.ErrNotExist)
}

func TestWrite_followsNoLinkThatIsLaidInItsWay(t *testing.T) {
	name := written(t, 33, "old")
	victim := in(t)
	require.NoError(t, os.WriteFile(victim, []byte("untouched"), 0o644))
	for _, way := range []string{name + ".fence.data", name + ".fence.new"} {
		require.NoError(t, os.Symlink(victim, way))
	}
	require.NoError(t, Write(t.Context(), name, 34, []byte("new"), 0o644))
	has(t, victim, "untouched")
	has(t, name, "new")
	isTidy(t, name)
}

func TestWrite_leavesDevicesAlone(t *testing.T) {
	pipe := in(t)
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	require.ErrorContains(t, Write(t.Context(), pipe, 1, []byte("new"), 0o644), "not a regular file")
	assert.Equal(t, fs.ModeNamedPipe, mode(t, pipe).Type())
	assert.NoFileExists(t, pipe+".fence.lock")
}
