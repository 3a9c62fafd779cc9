//go:build !unix

package main

import (
	"errors"
	"os"
	"runtime"
)

var errNoStop = errors.New("this story needs a process that stands still, by SIGSTOP, and there is no such thing on " + runtime.GOOS)

func stop(*os.Process) error { return errNoStop }

func cont(*os.Process) error { return errNoStop }

func stopSupported() error { return errNoStop }
