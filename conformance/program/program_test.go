package program

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
	"github.com/go-locker/locker/internal/tb"
)

const (
	plainHello = `{"protocol":1,"capabilities":["lock","unlock","cancel"]}`
	lostHello  = `{"protocol":1,"capabilities":["lock","unlock","cancel","lost"]}`
)

// shellProgram is a program of the shell. It answers requests in the order of its lines.
func shellProgram(lines string) Program {
	return Program{TTL: time.Second, Command: func() *exec.Cmd { return exec.Command("/bin/sh", "-c", lines) }}
}

func inTurn(hello string, answers ...string) string {
	text := fmt.Sprintf("echo '%s'\n", hello)
	for _, answer := range answers {
		text += "read request\n" + answer + "\n"
	}
	return text
}

// fatalOf runs f, and returns what ended it: it says nothing of the lock.
func fatalOf(t *testing.T, f func(*tb.Scope)) error {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no shell")
	}
	scope := tb.New(t.Context(), nil)
	t.Cleanup(scope.End)
	return scope.Run(func() { f(scope) })
}

func TestExec_ofAProgramThatDoesNotBegin(t *testing.T) {
	before := stdio.HelloWait
	stdio.HelloWait = time.Second
	t.Cleanup(func() { stdio.HelloWait = before })
	for lines, want := range map[string]string{
		"echo garbage":                          `its first line is not what a program begins with: "garbage"`,
		`echo '{"protocol":7}'`:                 "says protocol 7; this suite speaks 1",
		`echo '{"protocol":1}'`:                 "claims too little",
		"echo no server >&2; exit 3":            "it has ended its output; the end of its stderr: no server",
		"exec sleep 60":                         "it has not written its first line for 1s",
		"/no/such/program":                      "not found",
		`echo '[1]'; exec cat >/dev/null`:       `"[1]"`,
		`printf '{"protocol":1'`:                "its first line is not what a program begins with",
		`head -c 2000000 /dev/zero | tr '\0' x`: "it wrote a line of more than 1048576 bytes",
	} {
		start := time.Now()
		err := fatalOf(t, func(e *tb.Scope) { Exec(e, shellProgram(lines)) })
		require.ErrorContains(t, err, want, lines)
		assert.Less(t, time.Since(start), 10*time.Second, lines)
	}
}

func TestExec_ofAProgramWhoseAnswersAreBroken(t *testing.T) {
	const opened = `echo '{"id":1,"result":"ok"}'`
	for answer, want := range map[string]string{
		"echo oops":                                   `it wrote a line that is no answer: "oops"`,
		`echo '{"id":99,"result":"ok"}'`:              "it answers a request that was not sent, or that it has answered before",
		`echo '{"result":"ok"}'`:                      "it wrote an answer without an id",
		`echo '{"id":2,"result":"fine"}'`:             "it wrote an answer whose result is none of",
		`echo '{"id":2,"result":"error"}'`:            "it wrote an error without words",
		opened:                                        "it answers a request that was not sent, or that it has answered before",
		"echo segmentation fault >&2; exit 139":       "it has ended its output; the end of its stderr: segmentation fault",
		`echo '{"id":2,"result":"ok","token":"x"}'`:   "the token is no whole number",
		`echo '{"id":2,"result":"ok","token":-1.5}'`:  "the token is no whole number",
		`printf '{"id":2,"result":'; exec sleep 0.01`: "it wrote a line that is no answer",
	} {
		err := fatalOf(t, func(e *tb.Scope) {
			h := Exec(e, shellProgram(inTurn(plainHello, opened, answer)+"exec cat >/dev/null"))
			t.Errorf("%s: Lock returned %v", answer, h.New(e, "x", time.Second).Lock(e.Context()))
		})
		assert.ErrorContains(t, err, want, answer)
	}
}

func TestExec_needsACommandAndATTL(t *testing.T) {
	for _, p := range []Program{{}, {TTL: time.Second}, {TTL: time.Microsecond, Command: shellProgram("").Command}} {
		assert.ErrorContains(t, fatalOf(t, func(e *tb.Scope) { Exec(e, p) }), "a Program needs")
	}
}

// An open that is refused, or not answered, is the Harness's Fatalf: the lock does not hang.
func TestExec_ofALockerThatIsNotOpened(t *testing.T) {
	before := stdio.OpenWait
	stdio.OpenWait = time.Second
	t.Cleanup(func() { stdio.OpenWait = before })
	for lines, want := range map[string]string{
		inTurn(plainHello, `echo '{"id":1,"result":"error","error":"bad name"}'`) + "exec cat >/dev/null": "open: bad name",
		inTurn(plainHello) + "while read request; do :; done":                                             "open: no answer for 1s",
	} {
		err := fatalOf(t, func(e *tb.Scope) { Exec(e, shellProgram(lines)).New(e, "x", time.Second) })
		assert.ErrorContains(t, err, want)
	}
}

// What a program writes for people is shown up to a limit, and commands no terminal.
func TestExec_showsWhatAProgramWrites(t *testing.T) {
	var shown bytes.Buffer
	p := shellProgram("head -c 1000000 /dev/zero | tr '\\0' x >&2; printf '\033[2Jthe end' >&2; " +
		`printf '%s\n' '{"protocol":1,"name":"a\u001b[2J\nb","capabilities":["lock","unlock"]}'; read request
		printf '%s\n' '{"id":1,"result":"error","error":"no\u0007"}'`)
	inner := p.Command
	p.Command = func() *exec.Cmd {
		cmd := inner()
		cmd.Stderr = &shown
		return cmd
	}
	err := fatalOf(t, func(e *tb.Scope) {
		h := Exec(e, p)
		assert.Equal(t, "a\ufffd[2J b", h.Program.Hello.Name)
		h.New(e, "x", time.Second)
	})
	require.ErrorContains(t, err, "no\ufffd")
	assert.Less(t, shown.Len(), 100_000)
	assert.Contains(t, shown.String(), "no more of it is shown")
}

// Answers may come in any order.
func TestRemote_answersInAnyOrder(t *testing.T) {
	lines := inTurn(plainHello, `echo '{"id":1,"result":"ok"}'`) +
		`read a; read b; echo '{"id":3,"result":"not-held"}'; echo '{"id":2,"result":"ok"}'; exec cat >/dev/null`
	err := fatalOf(t, func(e *tb.Scope) {
		l, locked := Exec(e, shellProgram(lines)).New(e, "x", time.Second), make(chan error, 1)
		go func() { locked <- l.Lock(e.Context()) }()
		time.Sleep(settle)
		require.ErrorIs(t, l.Unlock(e.Context()), locker.ErrNotHeld)
		require.NoError(t, <-locked)
	})
	require.NoError(t, err)
}

func TestTry_saysWhatIsWrongAndShowsIt(t *testing.T) {
	var shown bytes.Buffer
	p := shellProgram(inTurn(plainHello, `echo '{"id":1,"result":"ok"}'`, `echo '{"id":2,"result":"ok"}'`))
	p.Trace = &shown
	var wrong []string
	err := fatalOf(t, func(e *tb.Scope) { wrong = Try(e, p) })
	require.NoError(t, err)
	require.NotEmpty(t, wrong)
	assert.Contains(t, wrong[0], `request 2, unlock: the answer is ok (); want ["not-held"]`)
	assert.Regexp(t, `(?m)^ +\d+\.\d{3} s  process \d+ is asked \{"id":1,"op":"open"`, shown.String())
	assert.Regexp(t, `(?m)^ +\d+\.\d{3} s  process \d+ answers  \{"id":1,"result":"ok"\}`, shown.String())
}

// A process serves again only if nothing of its last Lockers is left in it.
func TestPool_keepsWhatHasClosedItsLockers(t *testing.T) {
	const ok, refused = `echo '{"id":%d,"result":"ok"}'`, `echo '{"id":%d,"result":"error","error":"no"}'`
	for name, c := range map[string]struct {
		close string // the answer to that
		asks  bool   // something that is not answered before
		held  bool   // so that it is asked for the loss, until that is cancelled
		ended bool   // the pool, before
		kept  bool
	}{
		"closed":            {close: fmt.Sprintf(ok, 2), kept: true},
		"has held":          {close: fmt.Sprintf(ok, 2) + "; read request; read request; " + fmt.Sprintf(ok, 3) + "; " + fmt.Sprintf(ok, 4) + "; read request; " + fmt.Sprintf(ok, 5), held: true, kept: true},
		"comes back late":   {close: fmt.Sprintf(ok, 2), ended: true},
		"refuses to close":  {close: fmt.Sprintf(refused, 2)},
		"does not answer":   {close: "true"},
		"has ended":         {close: fmt.Sprintf(ok, 2) + "; exit"},
		"has more to say":   {close: fmt.Sprintf(ok, 3), asks: true},
		"ends in the close": {close: "exit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fatalOf(t, func(e *tb.Scope) {
				f := launcherOf(shellProgram(inTurn(lostHello, fmt.Sprintf(ok, 1), c.close, "read request")))
				p, err := f.Start("")
				if err != nil {
					e.Fatalf("%v", err)
				}
				defer p.End()
				lock := "x"
				l, err := remote.Open(e, p, stdio.Request{Locker: "a", Name: &lock, TTL: 1000})
				if err != nil {
					e.Fatalf("%v", err)
				}
				if c.held {
					require.NoError(t, l.Lock(e.Context()))
				}
				if c.ended {
					f.Pool.End()
				}
				if c.asks {
					p.Send(stdio.Request{Op: stdio.CanToken, Locker: "a"})
				}
				f.Pool.Put(p)
				if name == "has ended" {
					<-p.Gone()
				}
				if again := f.Pool.Take(); (again == p) != c.kept {
					e.Fatalf("it serves again: %t; want %t", again == p, c.kept)
				}
			})
			require.NoError(t, err)
		})
	}
}
