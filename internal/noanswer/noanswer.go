// Package noanswer has the error of a request that nobody has answered in time.
package noanswer

// Error says so, and what is silent. Two of the same text are equal.
type Error string

// Error is the text.
func (e Error) Error() string { return string(e) }

// Timeout is for those who tell such errors apart as package net has it.
func (Error) Timeout() bool { return true }
