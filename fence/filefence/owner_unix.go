//go:build unix

package filefence

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives t the owner and the group of old, as far as the process may, and then the mode of old. If the group is
// another now, that and all others may do what both could: nobody gets in whom old keeps out.
func keepOwner(t *os.File, old fs.FileInfo) error {
	mode := old.Mode()
	if was, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = t.Chown(-1, int(was.Gid))
		_ = t.Chown(int(was.Uid), -1)
		info, err := t.Stat()
		if err != nil {
			return err
		}
		if is, ok := info.Sys().(*syscall.Stat_t); !ok || is.Gid != was.Gid {
			both := mode >> 3 & mode & 0o007
			mode = mode&^(0o077|fs.ModeSetgid) | both<<3 | both
		}
	}
	return t.Chmod(mode)
}
