//go:build !unix

package stdio

import (
	"errors"
	"os"
	"os/exec"
)

var errNoStop = errors.New("this system stops no processes")

// StopsProcesses reports whether this system can stop one.
const StopsProcesses = false

// OwnGroup does nothing.
func OwnGroup(*exec.Cmd) {}

// StopGroup fails.
func StopGroup(*os.Process) error { return errNoStop }

// ContinueGroup fails.
func ContinueGroup(*os.Process) error { return errNoStop }

// KillGroup kills p alone.
func KillGroup(p *os.Process) error { return p.Kill() }
