package driver

import (
	"context"
	"time"
)

// Detach calls f in a goroutine, and returns when f does, or with ctx.Err() when ctx ends. It is
// for a Driver whose client library ignores contexts, or breaks its connection when one ends. The
// context of f has the values of ctx, and ends after limit. If f takes something after Detach has
// returned, the Release of the claim has to undo it.
func Detach(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- f(own)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
