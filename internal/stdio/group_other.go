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

func OwnGroup(*exec.Cmd) {}

func stopGroup(*os.Process) error { return errNoStop }

func continueGroup(*os.Process) error { return errNoStop }

func killGroup(p *os.Process) error { return p.Kill() }
