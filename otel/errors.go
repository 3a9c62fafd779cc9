package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/go-locker/locker"
)

// types are what errors are called, the first that fits: an error that says more than one thing says the
// most important one first. That ctx ended while another held the lock is the end of ctx.
var types = []struct {
	err  error
	name string
}{
	{locker.ErrLost, "lost"},
	{locker.ErrNotHeld, "not_held"},
	{locker.ErrClosed, "closed"},
	{locker.ErrUnsupported, "unsupported"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{locker.ErrHeld, "held"},
}

// failure reports whether a call has failed, and as what.
func failure(op string, err error) (bool, attribute.KeyValue) {
	if err == nil {
		return false, attribute.KeyValue{}
	}
	kind := errorType(err)
	return !asks(op) || kind.Value.AsString() != "held", kind
}

// errorType is the attribute error.type of an error, one of few values.
func errorType(err error) attribute.KeyValue {
	for _, t := range types {
		if errors.Is(err, t.err) {
			return semconv.ErrorTypeKey.String(t.name)
		}
	}
	var slow interface{ Timeout() bool }
	if errors.As(err, &slow) && slow.Timeout() {
		return semconv.ErrorTypeKey.String("timeout")
	}
	if ours, ok := errors.AsType[*locker.Error](err); ok {
		err = ours.Err
	}
	return semconv.ErrorType(err)
}
