//go:build unix && !linux

package testserver

import "syscall"

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// diesWithUs changes nothing here: only Linux can tie a process to its parent.
func diesWithUs() *syscall.SysProcAttr { return nil }

func isStopped(int) bool { return true }
