//go:build unix

package adapter

import "syscall"

// nonblock has open return although nobody writes to what has become a pipe.
const nonblock = syscall.O_NONBLOCK
