package conformance

import (
	"context"
	"sync/atomic"
)

// watchedContext is cancelled when somebody looks at it for the last of so many times.
type watchedContext struct {
	context.Context
	cancel context.CancelFunc
	looks  atomic.Int64
}

func cancelledAtLook(parent context.Context, looks int) *watchedContext {
	w := &watchedContext{}
	w.Context, w.cancel = context.WithCancel(parent)
	w.looks.Store(int64(looks))
	return w
}

func (w *watchedContext) look() {
	if w.looks.Add(-1) == 0 {
		w.cancel()
	}
}

func (w *watchedContext) Done() <-chan struct{} {
	w.look()
	return w.Context.Done()
}

func (w *watchedContext) Err() error {
	w.look()
	return w.Context.Err()
}
