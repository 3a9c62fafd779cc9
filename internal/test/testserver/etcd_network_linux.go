package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const knowsOwners = true

// inodeOf is that of the socket that has called port to from port from, both on 127.0.0.1, or empty.
func inodeOf(from, to int) string {
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return ""
	}
	hex := func(port int) string { return fmt.Sprintf("0100007F:%04X", port) }
	for line := range strings.Lines(string(table)) {
		// "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …"
		if field := strings.Fields(line); len(field) > 9 && field[1] == hex(from) && field[2] == hex(to) {
			return field[9]
		}
	}
	return ""
}

// hasSocket reports whether the process has the socket with that inode.
func hasSocket(pid int, inode string) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, file := range files {
		if what, err := os.Readlink(file); err == nil && what == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
