package program

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/stdio"
)

// Try is for the author of a program. It opens Lockers of the program, and calls each
// operation that the program claims. It returns what was not as the protocol says. What was sent
// and answered is written to p.Trace. It calls t.Fatalf if the program does not begin.
func Try(t conformance.TB, p Program) (wrong []string) {
	t.Helper()
	f := launcherOf(p)
	first, err := f.Start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer first.End()
	second, err := f.Start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer second.End()
	askAll(&triedProcess{first, &wrong}, &triedProcess{second, &wrong}, stdio.Milliseconds(p.TTL))
	return wrong
}

// triedProcess is a process that is tried, and what was wrong.
type triedProcess struct {
	p     *stdio.Program
	wrong *[]string
}

const (
	answerWait = 10 * time.Second
	settle     = 100 * time.Millisecond // a call that was begun has come to wait
)

// want sends a request, and notes if the answer is none of the results.
func (a *triedProcess) want(r stdio.Request, results ...string) {
	if r.Op != stdio.AskOpen && r.Op != stdio.AskClose && r.Op != "no-such-operation" && !a.p.Can(r.Op) {
		return
	}
	r.Locker = "a"
	id, reply := a.p.Send(r)
	a.awaited(r, id, reply, results...)
}

func (a *triedProcess) awaited(r stdio.Request, id uint64, reply <-chan stdio.Answer, results ...string) {
	note := func(format string, args ...any) {
		*a.wrong = append(*a.wrong, fmt.Sprintf("request %d, %s: ", id, r.Op)+fmt.Sprintf(format, args...))
	}
	switch answer, err := a.p.Await(reply, answerWait); {
	case err != nil:
		note("%v", err)
	case !slices.Contains(results, answer.Result):
		note("the answer is %s (%s); want %q", answer.Result, answer.Error, results)
	}
}

// askAll makes all the requests of a Try.
func askAll(first, second *triedProcess, ttl int64) {
	name := fmt.Sprintf("conformance-%016x", rand.Uint64())
	limit := func(ms int64) *int64 { return &ms }
	for _, p := range []*triedProcess{first, second} {
		p.want(stdio.Request{Op: stdio.AskOpen, Name: &name, TTL: 20 * ttl}, stdio.OK)
	}
	take := stdio.Request{Op: stdio.CanLock, Limit: limit(10 * ttl)}
	if !first.p.Can(stdio.CanLock) {
		take = stdio.Request{Op: stdio.CanTry}
	}
	first.want(stdio.Request{Op: stdio.CanUnlock}, stdio.NotHeld)
	first.want(take, stdio.OK)
	first.want(stdio.Request{Op: stdio.CanToken}, stdio.OK)
	first.want(stdio.Request{Op: stdio.CanExtend}, stdio.OK)
	first.want(stdio.Request{Op: stdio.CanDeadline}, stdio.OK)
	second.want(stdio.Request{Op: stdio.CanTry}, stdio.Held)
	second.want(stdio.Request{Op: stdio.CanLock, Limit: limit(200)}, stdio.Held, stdio.Cancelled)
	if second.p.Can(stdio.CanCancel) && second.p.Can(stdio.CanLock) {
		waits := stdio.Request{Op: stdio.CanLock, Locker: "a"}
		id, reply := second.p.Send(waits)
		time.Sleep(settle)
		second.want(stdio.Request{Op: stdio.CanToken}, stdio.OK) // while the other waits
		second.p.Cancel(id)
		second.awaited(waits, id, reply, stdio.Held, stdio.Cancelled)
	}
	first.want(stdio.Request{Op: "no-such-operation"}, stdio.Failed)
	first.want(stdio.Request{Op: stdio.CanUnlock}, stdio.OK)
	second.want(take, stdio.OK)
	second.want(stdio.Request{Op: stdio.CanUnlock}, stdio.OK)
	first.want(stdio.Request{Op: stdio.AskClose}, stdio.OK)
	first.p.CloseInput()
	select {
	case <-first.p.Gone():
	case <-time.After(answerWait):
		*first.wrong = append(*first.wrong, "its input has ended, and it has not")
	}
}
