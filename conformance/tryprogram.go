package conformance

import (
	"fmt"
	"slices"
	"time"
)

// TryProgram opens Lockers of a program and calls each operation that it claims, for the author of one. It returns what was not as the
// protocol says. What was sent and answered is written to p.Trace. It calls t.Fatalf if the program does not begin.
func TryProgram(t TB, p Program) (wrong []string) {
	t.Helper()
	f := &foreign{program: p, trace: newTrace(p.Trace)}
	first, err := f.start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer first.end()
	second, err := f.start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer second.end()
	try := &attempt{f: f, ttl: milliseconds(p.TTL)}
	a, b := try.of(first), try.of(second)
	try.sequence(a, b)
	return try.wrong
}

// attempt is a TryProgram under way.
type attempt struct {
	f     *foreign
	ttl   int64
	wrong []string
}

// asked is a process that is tried.
type asked struct {
	*attempt
	p *program
}

func (a *attempt) of(p *program) *asked { return &asked{a, p} }

const answerWait = 10 * time.Second

// want sends a request, and notes if the answer is none of the results.
func (a *asked) want(r requestLine, results ...string) {
	if r.Op != askOpen && r.Op != askClose && r.Op != "no-such-operation" && !a.p.can(r.Op) {
		return
	}
	r.Locker = "a"
	id, reply := a.p.send(r)
	a.awaited(r, id, reply, results...)
}

func (a *asked) awaited(r requestLine, id uint64, reply <-chan answerLine, results ...string) {
	note := func(format string, args ...any) {
		a.wrong = append(a.wrong, fmt.Sprintf("request %d, %s: ", id, r.Op)+fmt.Sprintf(format, args...))
	}
	var answer answerLine
	select {
	case answer = <-reply:
	case <-a.p.gone:
		select { // it may have answered, and ended then
		case answer = <-reply:
		default:
			note("%v", a.p.failure())
			return
		}
	case <-time.After(answerWait):
		note("no answer for %v", answerWait)
		return
	}
	if !slices.Contains(results, answer.Result) {
		note("the answer is %s (%s); want %q", answer.Result, answer.Error, results)
	}
}

// sequence is what is tried.
func (a *attempt) sequence(first, second *asked) {
	name := freshName()
	limit := func(ms int64) *int64 { return &ms }
	for _, p := range []*asked{first, second} {
		p.want(requestLine{Op: askOpen, Name: &name, TTL: 20 * a.ttl}, resultOK)
	}
	take := requestLine{Op: canLock, Limit: limit(10 * a.ttl)}
	if !first.p.can(canLock) {
		take = requestLine{Op: canTry}
	}
	first.want(requestLine{Op: canUnlock}, resultNotHeld)
	first.want(take, resultOK)
	first.want(requestLine{Op: canToken}, resultOK)
	first.want(requestLine{Op: canExtend}, resultOK)
	first.want(requestLine{Op: canDeadline}, resultOK)
	second.want(requestLine{Op: canTry}, resultHeld)
	second.want(requestLine{Op: canLock, Limit: limit(200)}, resultHeld, resultCancelled)
	if second.p.can(canCancel) && second.p.can(canLock) {
		waits := requestLine{Op: canLock, Locker: "a"}
		id, reply := second.p.send(waits)
		time.Sleep(settle)
		second.want(requestLine{Op: canToken}, resultOK) // while the other waits
		second.p.cancel(id)
		second.awaited(waits, id, reply, resultHeld, resultCancelled)
	}
	first.want(requestLine{Op: "no-such-operation"}, resultError)
	first.want(requestLine{Op: canUnlock}, resultOK)
	second.want(take, resultOK)
	second.want(requestLine{Op: canUnlock}, resultOK)
	first.want(requestLine{Op: askClose}, resultOK)
	_ = first.p.stdin.Close()
	select {
	case <-first.p.gone:
	case <-time.After(answerWait):
		a.wrong = append(a.wrong, "its input has ended, and it has not")
	}
}
