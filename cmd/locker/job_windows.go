package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// notify sends Ctrl-C, Ctrl-Break, and the end of the console or the session to c.
func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// winJob is a command in a job object, with all that it starts.
type winJob struct {
	cmd    *exec.Cmd
	job    windows.Handle
	result error // of the command
}

// start makes a job that ends with us, however we end, and a command in it. Processes that the command starts before it is in
// the job, within a moment, are not in it.
func start(cmd *exec.Cmd) (job, error) {
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

// signal sends Ctrl-Break: Ctrl-C does not reach a process group.
func (j *winJob) signal(os.Signal) { j.terminate() }

func (j *winJob) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(j.cmd.Process.Pid))
}

func (j *winJob) kill() { _ = windows.TerminateJobObject(j.job, exitLost) }

func (j *winJob) wait(func() bool) { j.result = j.cmd.Wait() }

// remains returns false: the rest of the job is killed when the command has ended.
func (j *winJob) remains() bool { return false }

func (j *winJob) reap() error { return j.result }

func statusCode(s *os.ProcessState) int { return s.ExitCode() }

func interrupted(*os.ProcessState) bool { return false }

func dieOfInterrupt() {}
