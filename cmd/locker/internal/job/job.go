// Package job runs a command together with the processes that it starts, as far as the system keeps
// them together: a process group and, on Linux, whatever descends from it; on Windows a job object.
package job

import "os"

// SignalBase is added to the number of the signal that ended a command, as shells do.
const SignalBase = 128

// Job is a command that [Start] has started, with the processes that it has started.
type Job interface {
	Signal(s os.Signal)
	Terminate() // the command may ignore it
	Kill()      // it cannot ignore this
	// Wait returns when the command has ended. If it was stopped, it asks whether it may go on.
	Wait(mayGoOn func() bool)
	Remains() bool // whether another process of the job is known to run
	Reap() error   // how the command ended
}
