package testserver

import "syscall"

// Windows knows no such signals: sending one fails the test that asks for it.
const (
	sigStop = syscall.Signal(19)
	sigCont = syscall.Signal(18)
)

func diesWithUs() *syscall.SysProcAttr { return nil }

func isStopped(int) bool { return true }
