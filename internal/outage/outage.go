// Package outage has the error of a request that was not answered, which the core and the adapters
// have in common.
package outage

// NoAnswer is the error of a request that was not answered in time. Its value is the text.
type NoAnswer string

// Error returns the text.
func (e NoAnswer) Error() string { return string(e) }

// Timeout returns true, as such errors of package net do.
func (NoAnswer) Timeout() bool { return true }
