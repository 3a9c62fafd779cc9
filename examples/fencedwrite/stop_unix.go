//go:build unix

package main

import (
	"os"
	"syscall"
)

// stop has a process stand still: it executes nothing, whatever it was about to do, until it is continued.
func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// stopSupported is nil where stop works.
func stopSupported() error { return nil }
