// Package noanswer tells the errors of an outage, which the core, the adapters and the command have
// in common, from answers of the backend.
package noanswer

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Error is the error of a request that was not answered in time. Its value is the text.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Timeout returns true, as such errors of package net do.
func (Error) Timeout() bool { return true }

// Outage reports whether err may be that of a backend which is unreachable for a while: a request
// was not answered, or a connection broke or could not be made. An answer of the server is none,
// nor is a host that does not exist, nor a failed TLS handshake: to wait would change nothing.
func Outage(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op != "remote error" && op.Op != "local error" // which are what package tls says of alerts
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return true
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}
