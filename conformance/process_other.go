//go:build !unix

package conformance

import (
	"errors"
	"os"
	"os/exec"
)

var errNoStop = errors.New("this system stops no processes")

const stopsProcesses = false

func ofItsOwn(*exec.Cmd) {}

func stopProcess(*os.Process) error { return errNoStop }

func continueProcess(*os.Process) error { return errNoStop }

func killGroup(p *os.Process) error { return p.Kill() }
