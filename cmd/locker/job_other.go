//go:build unix && !linux

package main

import "syscall"

// attributes are none: only Linux ends a command whose parent is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// stopped is not asked of the system: the lock of a command that has the terminal, and that Ctrl-Z has stopped, is renewed.
func stopped(int) bool { return false }
