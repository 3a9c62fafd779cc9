package filefence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// user is somebody who uses files.
type user struct{ uid, gid int }

// as runs f with the rights of somebody else, in a thread of its own that ends with it.
func as(t *testing.T, u user, f func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		err := errors.Join(syscall.Setfsgid(u.gid), syscall.Setfsuid(u.uid))
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// shared is the path of a file in a directory that every user can reach and write to.
func shared(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may act as another user")
	}
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	name := in(t)
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(name)), 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(name), 0o777))
	return name
}

var (
	alice = user{uid: 10001, gid: 20001}
	bob   = user{uid: 10002, gid: 20002}
)

// The new file is Bob's, and its group is his: nobody may get in whom the old file kept out.
func TestWrite_widensNothingWhereTheGroupCannotBeKept(t *testing.T) {
	for _, c := range []struct{ was, is fs.FileMode }{
		{0o600, 0o600},
		{0o640, 0o600},
		{0o660, 0o600},
		{0o604, 0o600},
		{0o644, 0o644},
		{0o664, 0o644},
		{0o666, 0o666},
		{0o755 | fs.ModeSetgid, 0o755},
		{0o750 | fs.ModeSetuid, 0o700},
	} {
		t.Run(fmt.Sprintf("%o", c.was), func(t *testing.T) {
			name := shared(t)
			require.NoError(t, as(t, alice, func() error { return Write(t.Context(), name, 33, []byte("old"), 0o666) }))
			require.NoError(t, os.Chmod(name, c.was))
			require.NoError(t, os.Chmod(name+".fence.lock", 0o666)) // which has Bob write, too
			require.NoError(t, as(t, bob, func() error { return Write(t.Context(), name, 34, []byte("new"), 0o666) }))
			assert.Equal(t, c.is, mode(t, name), "%v", mode(t, name))
			has(t, name, "new")
		})
	}
}

func TestWrite_keepsTheModeWhereTheGroupCanBeKept(t *testing.T) {
	for name, c := range map[string]struct {
		writer user
		dir    fs.FileMode
	}{
		"the writer is in it":    {user{bob.uid, alice.gid}, 0o777},
		"it is the directory's":  {bob, 0o777 | fs.ModeSetgid},
		"the writer is the same": {alice, 0o777},
	} {
		t.Run(name, func(t *testing.T) {
			name := shared(t)
			require.NoError(t, os.Chown(filepath.Dir(name), 0, alice.gid))
			require.NoError(t, os.Chmod(filepath.Dir(name), c.dir))
			require.NoError(t, as(t, alice, func() error { return Write(t.Context(), name, 33, []byte("old"), 0o664) }))
			require.NoError(t, os.Chmod(name, 0o640))
			require.NoError(t, os.Chmod(name+".fence.lock", 0o666))
			require.NoError(t, as(t, c.writer, func() error { return Write(t.Context(), name, 34, []byte("new"), 0o664) }))
			assert.Equal(t, fs.FileMode(0o640), mode(t, name))
			info, err := os.Stat(name)
			require.NoError(t, err)
			assert.EqualValues(t, alice.gid, info.Sys().(*syscall.Stat_t).Gid)
		})
	}
}

// Who can open the lock's file can lock it, and keep all writers out.
func TestLock_isNobodysWhoMayNotWrite(t *testing.T) {
	for _, c := range []struct {
		umask       int
		perm        fs.FileMode
		lock        fs.FileMode
		ofTheGroup  bool
		description string
	}{
		{0o022, 0o644, 0o600, false, "readable by all"},
		{0o000, 0o666, 0o660, true, "writable by all"},
		{0o002, 0o664, 0o660, true, "shared by a group"},
		{0o022, 0o664, 0o600, false, "shared by a group, which the umask prevents"},
		{0o077, 0o666, 0o600, false, "nobody else's by the umask"},
	} {
		t.Run(c.description, func(t *testing.T) {
			name := shared(t)
			syscall.Umask(c.umask)
			require.NoError(t, as(t, alice, func() error { return Write(t.Context(), name, 33, []byte("old"), c.perm) }))
			assert.Equal(t, c.lock, mode(t, name+".fence.lock"))
			lock := func() error {
				l, err := os.Open(name + ".fence.lock")
				if err != nil {
					return err
				}
				defer func() { _ = l.Close() }()
				return syscall.Flock(int(l.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
			}
			require.ErrorIs(t, as(t, bob, lock), fs.ErrPermission)
			colleague := user{uid: 10003, gid: alice.gid}
			if !c.ofTheGroup {
				require.ErrorIs(t, as(t, colleague, lock), fs.ErrPermission)
				return
			}
			require.NoError(t, as(t, colleague, func() error { return Write(t.Context(), name, 34, []byte("new"), c.perm) }))
			require.NoError(t, as(t, alice, func() error { return Write(t.Context(), name, 35, []byte("newer"), c.perm) }))
			has(t, name, "newer")
		})
	}
}
