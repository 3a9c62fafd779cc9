//go:build !linux

package testserver

import (
	"errors"
	"syscall"
)

// notAsRoot fails: on these systems we do not run as root.
func notAsRoot(*syscall.SysProcAttr, string) error {
	return errors.New("only on Linux a server that refuses to run as root is started by root")
}
