package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

var (
	helloWait = 20 * time.Second // a program that says nothing for so long has not begun
	openWait  = 20 * time.Second // one that answers no open for so long never will
)

const (
	goodbyeWait = time.Second // a program that has not ended so long after its stdin is killed
	longestLine = 1 << 20
)

// program is a process that serves Lockers.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *tail // the end of it
	trace  *trace
	hello  helloLine
	turn   chan struct{} // is taken while a request is under way, if only one may be

	ids    atomic.Uint64
	killed atomic.Bool // by a scenario
	once   sync.Once   // of end

	reaping sync.Mutex
	reaped  bool

	remotes []*remote // that are open; the pool's

	writing sync.Mutex
	mu      sync.Mutex
	waiting map[uint64]chan answerLine
	gone    chan struct{} // closed when it answers no more
	why     error
}

// startProgram starts one, which has said hello.
func startProgram(cmd *exec.Cmd, traced *trace) (*program, error) {
	p := &program{
		cmd: cmd, stderr: &tail{}, trace: traced, turn: make(chan struct{}, 1),
		waiting: map[uint64]chan answerLine{}, gone: make(chan struct{}),
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Stderr = io.MultiWriter(p.stderr, &capped{to: whereStderrGoes(cmd)})
	cmd.WaitDelay = goodbyeWait // what it has started may keep its stderr open
	ofItsOwn(cmd)
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.trace.note(p, "started", []byte(cmd.String()))
	hello := make(chan error, 1)
	go p.read(stdout, hello)
	timer := time.NewTimer(helloWait)
	defer timer.Stop()
	select {
	case err = <-hello:
	case <-timer.C:
		err = violation("it has not written its first line for %v", helloWait)
	}
	if err != nil {
		return nil, p.blamed(err)
	}
	return p, nil
}

func whereStderrGoes(cmd *exec.Cmd) io.Writer {
	if cmd.Stderr != nil {
		return cmd.Stderr
	}
	return os.Stderr
}

// read reads all that the program says.
func (p *program) read(stdout io.Reader, hello chan<- error) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(make([]byte, 4096), longestLine)
	begun := false
	for lines.Scan() {
		line := lines.Bytes()
		p.trace.note(p, "answers", line)
		var err error
		if !begun {
			p.hello, err = readHello(line)
			begun = true
			hello <- err
		} else {
			err = p.answered(line)
		}
		if err != nil {
			p.fail(err)
			_, _ = io.Copy(io.Discard, stdout) // lest it hang in a write
			return
		}
	}
	err := errors.New("it has ended its output")
	if p.killed.Load() {
		err = errors.New("it was killed")
	} else if e := lines.Err(); errors.Is(e, bufio.ErrTooLong) {
		err = violation("it wrote a line of more than %d bytes", longestLine)
	} else if e != nil {
		err = violation("its output cannot be read: %v", e)
	}
	p.fail(err)
	if !begun {
		hello <- err
	}
}

// answered hands an answer to who waits for it.
func (p *program) answered(line []byte) error {
	answer, err := readAnswer(line)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.waiting[answer.ID]
	if who == nil {
		return violation("it answers a request that was not sent, or that it has answered before: %s", shownLine(line))
	}
	delete(p.waiting, answer.ID)
	who <- answer
	return nil
}

// fail says why there are no more answers.
func (p *program) fail(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = why
		close(p.gone)
	}
}

// failure says the same.
func (p *program) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// blamed adds to an error after which the program is of no use which one it is, and the end of its
// stderr. It ends it: what it has written is read then.
func (p *program) blamed(err error) error {
	p.end()
	words := ""
	if last := p.stderr.String(); last != "" {
		words = "; the end of its stderr: " + last
	}
	return fmt.Errorf("the program %q: %w%s", p.cmd.Args, err, words)
}

// can reports whether it claims a capability.
func (p *program) can(capability string) bool { return p.hello.can(capability) }

// send sends a request, whose answer comes on the channel.
func (p *program) send(r requestLine) (id uint64, answer <-chan answerLine) {
	r.ID = p.ids.Add(1)
	line, err := json.Marshal(r)
	if err != nil { // of strings and numbers
		panic(err)
	}
	reply := make(chan answerLine, 1)
	p.mu.Lock()
	p.waiting[r.ID] = reply
	p.mu.Unlock()
	p.writing.Lock()
	defer p.writing.Unlock()
	p.trace.note(p, "is asked", line)
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		p.fail(fmt.Errorf("it reads no requests: %w", err))
	}
	return r.ID, reply
}

// cancel has the program give up a request. Nobody waits for what it says to that.
func (p *program) cancel(id uint64) { p.send(requestLine{Op: askCancel, Request: id}) }

// end has the program end, or kills it.
func (p *program) end() {
	p.once.Do(func() {
		_ = p.stdin.Close()
		select {
		case <-p.gone:
		case <-time.After(goodbyeWait):
		}
		p.kill()
		p.reaping.Lock()
		defer p.reaping.Unlock()
		_ = p.cmd.Wait()
		p.reaped = true
		p.trace.note(p, "ended", nil)
	})
}

// kill ends it and what it has started, as a crash does. The group keeps its number until the program is reaped.
func (p *program) kill() {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	if !p.reaped {
		_ = killGroup(p.cmd.Process)
	}
}
