package program

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

// Serve serves a Locker to the suite in a process that the suite has started by Faults.Process, and
// does not return there. In every other process it returns at once. In a test binary, call it first
// in TestMain:
//
//	func TestMain(m *testing.M) {
//		program.Serve(newLocker) // the Harness's New
//		os.Exit(m.Run())
//	}
//
// The test sets Faults.Process of its Harness to a function such as this one:
//
//	func(conformance.TB) *exec.Cmd {
//		cmd := exec.Command(os.Args[0])
//		cmd.Env = append(os.Environ(), "MYLOCK_ADDR="+addr)
//		return cmd
//	}
//
// The suite and the process speak the protocol of docs/evidence/judge-any-language.md.
func Serve(newLocker func(t conformance.TB, name string, ttl time.Duration) locker.Locker) {
	if os.Getenv(remote.ServedEnv) == "" {
		return
	}
	replies := os.Stdout
	os.Stdout = os.Stderr // whatever else is printed is no reply
	s := newServer(replies, conformance.Harness{New: newLocker})
	err := s.serve(os.Stdin, stdio.Hello{Capabilities: []string{stdio.CanLock, stdio.CanUnlock, stdio.CanExtend, stdio.CanToken, stdio.CanCancel, stdio.CanExpire}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ServeLocks serves the Lockers of h.New, and of h.Client if there is one. It reads requests from
// the parameter in, and writes answers to out, until in ends. The suite can judge a program that
// calls ServeLocks, as it judges a program in another language: see
// docs/evidence/judge-any-language.md. ServeLocks tells the suite the program's name, from the
// parameter name, and the methods that a Locker of h.New has beside those of [locker.Locker].
// Nothing else may be written to out.
func ServeLocks(in io.Reader, out io.Writer, name string, h conformance.Harness) error {
	s := newServer(out, h)
	hello := stdio.Hello{Name: name, Capabilities: []string{stdio.CanLock, stdio.CanUnlock, stdio.CanExtend, stdio.CanToken, stdio.CanCancel, stdio.CanExpire}}
	err := s.tb.Run(func() {
		l := h.New(s.tb, "conformance", h.TTL)
		if _, ok := l.(power.TryLocker); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanTry)
		}
		if _, ok := power.Of[power.Loser](l); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanLost)
		}
		if _, ok := power.Of[power.Deadliner](l); ok {
			hello.Capabilities = append(hello.Capabilities, stdio.CanDeadline)
		}
		promises := h.Promises
		if g, ok := l.(power.Guarantor); ok && promises == nil {
			promises = g.Guarantees()
		}
		hello.Promises = promisesInWords(promises)
	})
	if err != nil {
		s.tb.End()
		return err
	}
	if h.Client != nil {
		hello.Capabilities = append(hello.Capabilities, stdio.CanShare, stdio.CanRenew)
	}
	return s.serve(in, hello)
}

// promisesInWords are those of a hello: a promise with a condition is that condition.
func promisesInWords(promises locker.Guarantees) map[string]string {
	words := map[string]string{}
	for g, p := range promises {
		words[string(g)] = p.Level.String()
		if p.Level == locker.LevelConditional {
			words[string(g)] = p.Condition
		}
	}
	return words
}

// promisesOf is the reverse.
func promisesOf(words map[string]string) locker.Guarantees {
	promises := locker.Guarantees{}
	for g, says := range words {
		promise := locker.Promise{Level: locker.LevelConditional, Condition: says}
		for _, level := range []locker.Level{locker.LevelYes, locker.LevelNo} {
			if says == level.String() {
				promise = locker.Promise{Level: level}
			}
		}
		promises[locker.Guarantee(g)] = promise
	}
	return promises
}
