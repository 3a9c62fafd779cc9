// Package noanswer tells the errors of an outage, which the core, the adapters and the command have
// in common, from answers of the backend.
package noanswer

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// Error is the error of a request that was not answered in time. Its value is the text.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Timeout returns true, as such errors of package net do.
func (Error) Timeout() bool { return true }

// Later is the answer of a server that serves nobody for a while, such as one that starts.
type Later struct{ Err error }

// Error returns the text of the answer.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the answer.
func (l *Later) Unwrap() error { return l.Err }

// Temporary returns true, by which Outage knows such an answer of any Driver.
func (*Later) Temporary() bool { return true }

// Outage reports whether err may be that of a backend which is unreachable for a while: a request
// was not answered, a connection broke or could not be made, or the server serves nobody for a
// while. Any other answer is none, nor is a host that does not exist, nor a failed TLS handshake:
// to wait would change nothing.
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
	if t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err); ok && t.Temporary() {
		return true
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}

type startKey struct{}

// WithStart returns the context of a Lock that began at start, of package clock, and waited until
// other calls of its process had asked for the lock in vain. The time for which it rides out an
// outage counts from then.
func WithStart(ctx context.Context, start time.Time) context.Context {
	return context.WithValue(ctx, startKey{}, start)
}

// Start returns the start that ctx has from WithStart, or the zero Time.
func Start(ctx context.Context) time.Time {
	start, _ := ctx.Value(startKey{}).(time.Time)
	return start
}
