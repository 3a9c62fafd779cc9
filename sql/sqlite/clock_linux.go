package sqlite

import (
	"time"

	"golang.org/x/sys/unix"
)

// now returns microseconds since the machine has started, suspension included. Nobody can set this
// clock, and it is the same for all processes of one kernel.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it fails for an unknown clock alone
	return ts.Nano() / int64(time.Microsecond)
}

const sane = "" // this clock is

// shared returns what kind of file system path is on, if other machines may share it.
func shared(path string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return ""
	}
	return map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB",
		unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "Ceph", unix.FUSE_SUPER_MAGIC: "FUSE",
	}[int64(uint32(fs.Type))]
}
