package sqlite

import (
	"fmt"
	"os"
	"strings"
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

// boot returns what now counts from: an id that the kernel makes when it starts.
func boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("the boot id of the machine cannot be read, and holds end by a clock that counts from the boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
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
