package stdio

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

// How long a program may say nothing. Tests have less patience.
var (
	HelloWait = 20 * time.Second // before its first line; one that says nothing for longer has not begun
	OpenWait  = 20 * time.Second // before it answers an open; one that does not never will
)

const goodbyeWait = time.Second // a program that has not ended so long after its stdin is killed

// LongestLine is how many bytes a line may have.
const LongestLine = 1 << 20

// Program is a process that serves Lockers.
type Program struct {
	Hello Hello

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *Tail // the end of it
	trace  *Trace
	turn   chan struct{} // is taken while a request is under way, if only one may be

	ids    atomic.Uint64
	killed atomic.Bool // by Kill
	once   sync.Once   // of End

	reaping sync.Mutex
	reaped  bool

	writing sync.Mutex
	mu      sync.Mutex
	waiting map[uint64]chan Answer
	open    []locker
	gone    chan struct{} // closed when it answers no more
	why     error
}

// Start starts one, which has said hello.
func Start(cmd *exec.Cmd, trace *Trace) (*Program, error) {
	p := &Program{
		cmd: cmd, stderr: &Tail{}, trace: trace, turn: make(chan struct{}, 1),
		waiting: map[uint64]chan Answer{}, gone: make(chan struct{}),
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Stderr = io.MultiWriter(p.stderr, &capped{to: whereStderrGoes(cmd)})
	cmd.WaitDelay = goodbyeWait // what it has started may keep its stderr open
	OwnGroup(cmd)
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
	timer := time.NewTimer(HelloWait)
	defer timer.Stop()
	select {
	case err = <-hello:
	case <-timer.C:
		err = violation("it has not written its first line for %v", HelloWait)
	}
	if err != nil {
		return nil, p.Blamed(err)
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
func (p *Program) read(stdout io.Reader, hello chan<- error) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(make([]byte, 4096), LongestLine)
	begun := false
	for lines.Scan() {
		line := lines.Bytes()
		p.trace.note(p, "answers", line)
		var err error
		if !begun {
			p.Hello, err = readHello(line)
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
		err = violation("it wrote a line of more than %d bytes", LongestLine)
	} else if e != nil {
		err = violation("its output cannot be read: %v", e)
	}
	p.fail(err)
	if !begun {
		hello <- err
	}
}

// answered hands an answer to who waits for it.
func (p *Program) answered(line []byte) error {
	answer, err := ReadAnswer(line)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.waiting[answer.ID]
	if who == nil {
		return violation("it answers a request that was not sent, or that it has answered before: %s", Shown(line))
	}
	delete(p.waiting, answer.ID)
	who <- answer
	return nil
}

// fail says why there are no more answers.
func (p *Program) fail(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = why
		close(p.gone)
	}
}

// Failure says why there are no more answers; nil: there may be some.
func (p *Program) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// Blamed adds to an error after which the program is of no use which one it is, and the end of its
// stderr. It ends it: what it has written is read then.
func (p *Program) Blamed(err error) error {
	p.End()
	words := ""
	if last := p.stderr.String(); last != "" {
		words = "; the end of its stderr: " + last
	}
	return fmt.Errorf("the program %q: %w%s", p.cmd.Args, err, words)
}

// Can reports whether it claims a capability.
func (p *Program) Can(capability string) bool { return p.Hello.Can(capability) }

// Send sends a request, whose answer comes on the channel.
func (p *Program) Send(r Request) (id uint64, answer <-chan Answer) {
	r.ID = p.ids.Add(1)
	line, err := json.Marshal(r)
	if err != nil { // of strings and numbers
		panic(err)
	}
	reply := make(chan Answer, 1)
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

// Await returns the answer to a request, or says that the program has ended, or has not answered
// for d.
func (p *Program) Await(reply <-chan Answer, d time.Duration) (answer Answer, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case answer = <-reply:
		return answer, nil
	case <-p.gone:
		err = p.Failure()
	case <-timer.C:
		err = fmt.Errorf("no answer for %v", d)
	}
	select { // it may have come in the same moment
	case answer = <-reply:
		return answer, nil
	default:
		return answer, err
	}
}

// Cancel has the program give up a request. Nobody waits for what it says to that.
func (p *Program) Cancel(id uint64) { p.Send(Request{Op: AskCancel, Request: id}) }

// End has the program end, or kills it.
func (p *Program) End() {
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

// Kill ends it and what it has started, as a crash does.
func (p *Program) Kill() {
	p.killed.Store(true)
	p.kill()
}

// Killed reports whether it was ended by Kill.
func (p *Program) Killed() bool { return p.killed.Load() }

// kill is Kill. The group keeps its number until the program is reaped.
func (p *Program) kill() {
	p.reaping.Lock()
	defer p.reaping.Unlock()
	if !p.reaped {
		_ = KillGroup(p.cmd.Process)
	}
}

// Stop stops it and what it has started, and returns when it has stopped.
func (p *Program) Stop() error { return StopGroup(p.cmd.Process) }

// Continue undoes Stop.
func (p *Program) Continue() error { return ContinueGroup(p.cmd.Process) }

// Gone is closed when it answers no more.
func (p *Program) Gone() <-chan struct{} { return p.gone }

// CloseInput says that there are no more requests: it should end.
func (p *Program) CloseInput() { _ = p.stdin.Close() }

// Turn waits until no other request is under way, if only one may be. over says that it is
// answered.
func (p *Program) Turn() (over func()) {
	if !p.Can(CanCancel) {
		select {
		case p.turn <- struct{}{}:
			return func() { <-p.turn }
		case <-p.gone:
		}
	}
	return func() {}
}

// Pool is processes whose Lockers were closed. Where programs start slowly, most of a check would
// be their starts.
type Pool struct {
	mu    sync.Mutex
	idle  []*Program
	ended bool
}

const (
	mostIdle  = 24
	closeWait = 500 * time.Millisecond
)

// Take returns a process without a Locker, or nil.
func (o *Pool) Take() *Program {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.idle) > 0 {
		p := o.idle[len(o.idle)-1]
		o.idle = o.idle[:len(o.idle)-1]
		if p.Failure() == nil {
			return p
		}
		go p.End()
	}
	return nil
}

// Put takes a process back, or ends it: if it has something left to answer, or does not close its
// Lockers.
func (o *Pool) Put(p *Program) {
	closed := p.closeAll()
	o.mu.Lock()
	keep := closed && !o.ended && len(o.idle) < mostIdle
	if keep {
		o.idle = append(o.idle, p)
	}
	o.mu.Unlock()
	if !keep {
		p.End()
	}
}

// End ends all that there are, and those that come back.
func (o *Pool) End() {
	o.mu.Lock()
	idle := o.idle
	o.idle, o.ended = nil, true
	o.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range idle {
		wg.Go(p.End)
	}
	wg.Wait()
}

// locker is one of a program.
type locker struct {
	id   string
	asks func() uint64 // the request that waits for the loss of its hold, or 0
}

// Opened remembers a Locker, to be closed. asks returns the request that is answered when its hold
// is lost, or 0.
func (p *Program) Opened(id string, asks func() uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, locker{id, asks})
}

// closeAll reports whether the program has nothing left to answer, and closes its Lockers.
func (p *Program) closeAll() bool {
	p.mu.Lock()
	open := p.open
	p.open = nil
	p.mu.Unlock()
	for _, l := range open {
		if request := l.asks(); request != 0 {
			p.Cancel(request)
		}
	}
	if !p.quiet() {
		return false
	}
	for _, l := range open {
		_, reply := p.Send(Request{Op: AskClose, Locker: l.id})
		if answer, err := p.Await(reply, closeWait); err != nil || answer.Result != OK {
			return false
		}
	}
	return true
}

// quiet reports whether all requests are answered, or soon are.
func (p *Program) quiet() bool {
	for end := time.Now().Add(closeWait); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		left, gone := len(p.waiting), p.why != nil
		p.mu.Unlock()
		if left == 0 || gone || time.Now().After(end) {
			return left == 0 && !gone
		}
	}
}
