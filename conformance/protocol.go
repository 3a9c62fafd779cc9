package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The suite speaks to programs in lines of JSON. docs/judge-any-language.md is the specification, for authors in every language.

// protocolVersion changes when a program that was right is not any more.
const protocolVersion = 1

// The capabilities that a program may claim. What it does not claim is not asked of it.
const (
	canLock     = "lock"
	canTry      = "try"
	canUnlock   = "unlock"
	canExtend   = "extend"
	canToken    = "token"
	canCancel   = "cancel"
	canExpire   = "expire"
	canShare    = "share"
	canRenew    = "renew"
	canLost     = "lost"
	canDeadline = "deadline"
)

var capabilities = []string{
	canLock, canTry, canUnlock, canExtend, canToken, canCancel, canExpire, canShare, canRenew, canLost, canDeadline,
}

// The operations that are no capabilities of the same name.
const (
	askOpen   = "open"
	askClose  = "close"
	askCancel = "cancel"
)

// helloLine is a program's first line.
type helloLine struct {
	Protocol     int               `json:"protocol"`
	Name         string            `json:"name,omitempty"`
	Capabilities []string          `json:"capabilities"`
	Promises     map[string]string `json:"promises,omitempty"`
}

// can reports whether the program claims a capability.
func (h helloLine) can(capability string) bool { return slices.Contains(h.Capabilities, capability) }

// requestLine is what the suite asks.
type requestLine struct {
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

// answerLine is what the program answers.
type answerLine struct {
	ID     uint64      `json:"id"`
	Result string      `json:"result"`
	Error  string      `json:"error,omitempty"`
	Token  tokenNumber `json:"token,omitempty"`
	Left   *float64    `json:"left_ms,omitempty"`
}

// The results.
const (
	resultOK        = "ok"
	resultHeld      = "held"
	resultLost      = "lost"
	resultNotHeld   = "not-held"
	resultCancelled = "cancelled"
	resultError     = "error"
)

var knownResults = []string{resultOK, resultHeld, resultLost, resultNotHeld, resultCancelled, resultError}

// tokenNumber is a number, or a string of digits: not every language has numbers of 64 bits.
type tokenNumber uint64

// UnmarshalJSON reads either.
func (n *tokenNumber) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	value, err := strconv.ParseUint(string(bytes.Trim(text, `"`)), 10, 64)
	if err != nil {
		return errors.New("the token is no whole number from 0 to 2^64-1")
	}
	*n = tokenNumber(value)
	return nil
}

// protocolError is what a program did that the protocol does not allow. It says nothing of its lock.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return e.what }

func violation(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// shownLine is a line as far as a person reads it.
func shownLine(line []byte) string {
	const enough = 300
	if len(line) > enough {
		return fmt.Sprintf("%q… (%d bytes)", line[:enough], len(line))
	}
	return fmt.Sprintf("%q", line)
}

// readHello takes apart a program's first line.
func readHello(line []byte) (helloLine, error) {
	var hello helloLine
	if err := json.Unmarshal(line, &hello); err != nil {
		return hello, violation("its first line is not what a program begins with: %s: %v", shownLine(line), err)
	}
	hello.Name = strings.Join(strings.Fields(printable(hello.Name)), " ")
	for guarantee, words := range hello.Promises {
		hello.Promises[guarantee] = printable(words)
	}
	if hello.Protocol != protocolVersion {
		return hello, violation("its first line says protocol %d; this suite speaks %d: %s", hello.Protocol, protocolVersion, shownLine(line))
	}
	if !hello.can(canUnlock) || !hello.can(canLock) && !hello.can(canTry) {
		return hello, violation("its first line claims too little: a lock needs unlock, and lock or try: %s", shownLine(line))
	}
	return hello, nil
}

// readAnswer takes apart any other line.
func readAnswer(line []byte) (answerLine, error) {
	var answer answerLine
	err := json.Unmarshal(line, &answer)
	answer.Error = printable(answer.Error)
	switch {
	case err != nil:
		return answer, violation("it wrote a line that is no answer: %s: %v", shownLine(line), err)
	case answer.ID == 0:
		return answer, violation("it wrote an answer without an id: %s", shownLine(line))
	case !slices.Contains(knownResults, answer.Result):
		return answer, violation("it wrote an answer whose result is none of %q: %s", knownResults, shownLine(line))
	case answer.Result == resultError && answer.Error == "":
		return answer, violation("it wrote an error without words, in the field error: %s", shownLine(line))
	}
	return answer, nil
}

// milliseconds is d as a request has it, rounded up: 0 is no time at all.
func milliseconds(d time.Duration) int64 {
	return max(0, int64((d+time.Millisecond-1)/time.Millisecond))
}
