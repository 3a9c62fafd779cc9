package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// The flag --server is refused here. See execOptions.valid.
const (
	sigStop = syscall.SIGKILL
	sigCont = syscall.SIGKILL
)

func leadsGroup(*exec.Cmd) {}

func signalGroup(int, syscall.Signal) error { return errors.New("this system cannot stop processes") }

func guardGroup(int) (*exec.Cmd, error) { return nil, errors.New("this system has no process groups") }
