// Package noanswer has the error of a request that was not answered, which the core and the
// adapters have in common.
package noanswer

// Error is the error of a request that was not answered in time. Its value is the text.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Timeout returns true, as such errors of package net do.
func (Error) Timeout() bool { return true }
