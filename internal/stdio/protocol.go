// Package stdio speaks to programs that serve locks, in lines of JSON on their standard input and
// output. docs/evidence/judge-any-language.md is the specification, for authors in every language.
package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Version changes when a program that was right is not any more.
const Version = 1

// The capabilities that a program may claim. What it does not claim is not asked of it.
const (
	CanLock     = "lock"
	CanTry      = "try"
	CanUnlock   = "unlock"
	CanExtend   = "extend"
	CanToken    = "token"
	CanCancel   = "cancel"
	CanExpire   = "expire"
	CanShare    = "share"
	CanRenew    = "renew"
	CanLost     = "lost"
	CanDeadline = "deadline"
)

// Capabilities are all of them.
var Capabilities = []string{
	CanLock, CanTry, CanUnlock, CanExtend, CanToken, CanCancel, CanExpire, CanShare, CanRenew, CanLost, CanDeadline,
}

// The operations that are no capabilities of the same name.
const (
	AskOpen   = "open"
	AskClose  = "close"
	AskCancel = "cancel"
)

// AddressEnv is the environment variable that tells a program where its server is.
const AddressEnv = "LOCKER_ADDRESS"

// Hello is a program's first line.
type Hello struct {
	Protocol     int               `json:"protocol"`
	Name         string            `json:"name,omitempty"`
	Capabilities []string          `json:"capabilities"`
	Promises     map[string]string `json:"promises,omitempty"`
}

// Can reports whether the program claims a capability.
func (h Hello) Can(capability string) bool { return slices.Contains(h.Capabilities, capability) }

// Unknown returns the capabilities that the suite does not know, and does not ask for.
func (h Hello) Unknown() []string {
	return slices.DeleteFunc(slices.Clone(h.Capabilities), func(c string) bool { return slices.Contains(Capabilities, c) })
}

// Request is what the suite asks.
type Request struct {
	ID      uint64  `json:"id"`
	Op      string  `json:"op"`
	Locker  string  `json:"locker,omitempty"`
	Name    *string `json:"name,omitempty"` // of the lock; it may be empty
	TTL     int64   `json:"ttl_ms,omitempty"`
	Renew   bool    `json:"renew,omitempty"`
	Shared  bool    `json:"shared,omitempty"` // lock is to take a share; asked of programs of this package alone
	Limit   *int64  `json:"limit_ms,omitempty"`
	Request uint64  `json:"request,omitempty"` // that is cancelled
}

// Answer is what the program answers.
type Answer struct {
	ID     uint64   `json:"id"`
	Result string   `json:"result"`
	Error  string   `json:"error,omitempty"`
	Token  Token    `json:"token,omitempty"`
	Left   *float64 `json:"left_ms,omitempty"`
}

// The results.
const (
	OK        = "ok"
	Held      = "held"
	Lost      = "lost"
	NotHeld   = "not-held"
	Cancelled = "cancelled"
	Failed    = "error"
)

var knownResults = []string{OK, Held, Lost, NotHeld, Cancelled, Failed}

// Token is a number, or a string of digits: not every language has numbers of 64 bits.
type Token uint64

// UnmarshalJSON reads either.
func (n *Token) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	value, err := strconv.ParseUint(string(bytes.Trim(text, `"`)), 10, 64)
	if err != nil {
		return errors.New("the token is no whole number from 0 to 2^64-1")
	}
	*n = Token(value)
	return nil
}

// protocolError is what a program did that the protocol does not allow. It says nothing of its lock.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return e.what }

func violation(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// Shown is a line as far as a person reads it.
func Shown(line []byte) string {
	const enough = 300
	if len(line) > enough {
		return fmt.Sprintf("%q… (%d bytes)", line[:enough], len(line))
	}
	return fmt.Sprintf("%q", line)
}

// readHello takes apart a program's first line.
func readHello(line []byte) (Hello, error) {
	var hello Hello
	if err := json.Unmarshal(line, &hello); err != nil {
		return hello, violation("its first line is not what a program begins with: %s: %v", Shown(line), err)
	}
	hello.Name = strings.Join(strings.Fields(Printable(hello.Name)), " ")
	for guarantee, words := range hello.Promises {
		hello.Promises[guarantee] = Printable(words)
	}
	if hello.Protocol != Version {
		return hello, violation("its first line says protocol %d; this suite speaks %d: %s", hello.Protocol, Version, Shown(line))
	}
	if !hello.Can(CanUnlock) || !hello.Can(CanLock) && !hello.Can(CanTry) {
		return hello, violation("its first line claims too little: a lock needs unlock, and lock or try: %s", Shown(line))
	}
	return hello, nil
}

// ReadAnswer takes apart any other line.
func ReadAnswer(line []byte) (Answer, error) {
	var answer Answer
	err := json.Unmarshal(line, &answer)
	answer.Error = Printable(answer.Error)
	switch {
	case err != nil:
		return answer, violation("it wrote a line that is no answer: %s: %v", Shown(line), err)
	case answer.ID == 0:
		return answer, violation("it wrote an answer without an id: %s", Shown(line))
	case !slices.Contains(knownResults, answer.Result):
		return answer, violation("it wrote an answer whose result is none of %q: %s", knownResults, Shown(line))
	case answer.Result == Failed && answer.Error == "":
		return answer, violation("it wrote an error without words, in the field error: %s", Shown(line))
	}
	return answer, nil
}

// Milliseconds is d as a request has it, rounded up: 0 is no time at all.
func Milliseconds(d time.Duration) int64 {
	return max(0, int64((d+time.Millisecond-1)/time.Millisecond))
}

// Tail keeps the end of what a program writes, for errors: some write much.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end.
func (t *Tail) Write(text []byte) (int, error) {
	const enough = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(text), nil
}

// String returns it without what would command a terminal.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Printable(string(bytes.TrimSpace(t.text)))
}

// capped passes on the beginning of what is written.
type capped struct {
	to   io.Writer
	used int
}

// Write drops what is too much.
func (c *capped) Write(text []byte) (int, error) {
	const most = 64 << 10
	if c.used <= most {
		_, _ = c.to.Write(text[:min(len(text), most-c.used)])
		if c.used += len(text); c.used > most {
			_, _ = io.WriteString(c.to, "\n(no more of it is shown)\n")
		}
	}
	return len(text), nil
}

// Printable is text that commands no terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Trace writes down what was said, in order of time. Nil writes nothing.
type Trace struct {
	mu    sync.Mutex
	to    io.Writer
	began time.Time
}

// NewTrace returns one that writes to to; nil if that is nil.
func NewTrace(to io.Writer) *Trace {
	if to == nil {
		return nil
	}
	return &Trace{to: to, began: time.Now()}
}

func (t *Trace) note(p *Program, what string, line []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.to, "%9.3f s  process %d %-8s %s\n", time.Since(t.began).Seconds(), p.cmd.Process.Pid, what, line)
}
