//go:build unix

package child

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patient = time.Minute

// Process is the parent's side of a child, which is told lines and says lines.
type Process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	out   *bufio.Reader
}

// Command is this test binary, to do what is registered under name, with more in its environment.
func Command(name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$") // no test, should TestMain not call Serve
	cmd.Env = append(append(os.Environ(), nameEnv+"="+name), env...)
	return cmd
}

// Start starts this test binary again, as [Command] says. It is killed when t ends.
func Start(t *testing.T, name string, env ...string) *Process {
	t.Helper()
	cmd := Command(name, env...)
	cmd.Stderr = os.Stderr
	// In a process group of its own a stopped child does not outlive this process: the kernel hangs up on it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Process{t, cmd, stdin, bufio.NewReader(out)}
}

// Tell sends a line, which the child reads when it runs.
func (p *Process) Tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	must(p.t, err)
}

// Says returns the words of the child's next line, which must begin with what, without that. A child that says nothing for long
// is killed.
func (p *Process) Says(what string) []string {
	p.t.Helper()
	impatient := time.AfterFunc(patient, func() { _ = p.cmd.Process.Kill() })
	defer impatient.Stop()
	line, err := p.out.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) == 0 || words[0] != what {
		rest, _ := io.ReadAll(p.out)
		p.t.Fatalf("the child does not say %q, but: %s%s%v", what, line, rest, err)
	}
	return words[1:]
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// Stop returns when all threads of the process have stopped.
func (p *Process) Stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			must(p.t, err)
			break
		}
	}
	if !status.Stopped() {
		p.t.Fatalf("the child has ended: %v", status)
	}
}

// Continue undoes Stop.
func (p *Process) Continue() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
}
