//go:build unix

package adapterurl

import "syscall"

// nonblock has open return although nobody writes to what has become a pipe.
const nonblock = syscall.O_NONBLOCK
