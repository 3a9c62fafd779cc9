package job

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Forward has Ctrl-C, Ctrl-Break, and the end of the console or the session sent to c.
func Forward(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// winJob is a command in a job object, with all that it starts.
type winJob struct {
	cmd    *exec.Cmd
	job    windows.Handle
	result error // of the command
}

// Start starts cmd as a Job that ends with us, however we end. Processes that the command starts
// before it is in the job, within a moment, are not in it.
func Start(cmd *exec.Cmd) (Job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	j := &winJob{cmd: cmd, job: handle}
	if err := j.adopt(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errors.Join(err, windows.CloseHandle(handle))
	}
	return j, nil
}

func (j *winJob) adopt() error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(j.cmd.Process.Pid))
	if err != nil {
		return err
	}
	return errors.Join(windows.AssignProcessToJobObject(j.job, p), windows.CloseHandle(p))
}

// Signal implements [Job]. It sends Ctrl-Break: Ctrl-C does not reach a process group.
func (j *winJob) Signal(os.Signal) { j.Terminate() }

// Terminate implements [Job].
func (j *winJob) Terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(j.cmd.Process.Pid))
}

// Kill implements [Job].
func (j *winJob) Kill() { _ = windows.TerminateJobObject(j.job, 1) }

// Wait implements [Job].
func (j *winJob) Wait(func() bool) { j.result = j.cmd.Wait() }

// Remains implements [Job]. It returns false: the rest of the job is killed when the command has ended.
func (j *winJob) Remains() bool { return false }

// Reap implements [Job].
func (j *winJob) Reap() error { return j.result }

// ExitCode is that of a command that has ended.
func ExitCode(s *os.ProcessState) int { return s.ExitCode() }

// interrupted returns false: there are no signals.
func interrupted(*os.ProcessState) bool { return false }

// DieOfInterrupt does nothing.
func DieOfInterrupt() {}
