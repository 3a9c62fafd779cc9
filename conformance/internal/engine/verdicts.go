package engine

import (
	"errors"
	"fmt"
)

// Doubt is an error that counts only if every trial ends with one.
type Doubt struct{ Seen error }

// Error is what was seen.
func (d *Doubt) Error() string { return d.Seen.Error() }

// Unwrap returns what was seen.
func (d *Doubt) Unwrap() error { return d.Seen }

// ErrInDoubt is of a trial that says nothing of the lock: a history was not disturbed as it was to
// be, or the checker could not decide. No deviation of the backend explains it.
var ErrInDoubt = errors.New("in doubt")

// Fatal is a Fatalf of the harness.
type Fatal struct{ Message string }

// Error is the message.
func (f *Fatal) Error() string { return f.Message }

// IdleFault is a fault that did nothing. It blames the Harness, and no deviation of the backend
// explains it.
type IdleFault struct{ field, seen string }

// Idle returns the error of a fault that did nothing. Field is that of Faults.
func Idle(field, format string, args ...any) error {
	return &IdleFault{field, fmt.Sprintf(format, args...)}
}

// Error says what was done, and what was seen.
func (f *IdleFault) Error() string {
	return fmt.Sprintf("your fault did nothing: Faults.%s: %s", f.field, f.seen)
}
