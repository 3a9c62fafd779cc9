//go:build unix && !linux

package main

import "syscall"

// attributes are none: only Linux ends a command whose parent is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// suspensions are not followed: the lock of a command that Ctrl-Z has stopped is renewed.
func (g *group) suspensions(func() bool) {}
