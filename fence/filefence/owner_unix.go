//go:build unix

package filefence

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives t the owner and the group of old, as far as the process may.
func keepOwner(t *os.File, old fs.FileInfo) {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = t.Chown(-1, int(s.Gid))
		_ = t.Chown(int(s.Uid), -1)
	}
}
