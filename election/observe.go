package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-locker/locker"
)

// Leader is who leads. The zero Leader is nobody.
type Leader struct {
	ID   string // its name, by locker.WithMetadata
	Term uint64 // larger than that of every earlier leader
}

// Leader returns who leads, as the backend knew it at one moment: the zero Leader if nobody does.
// It makes one request, by [locker.Client.Inspect], and returns the errors of that: ErrUnsupported
// if the backend does not tell.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	state, err := e.client.Inspect(ctx, e.lock.Name())
	if err != nil || !state.Held {
		return Leader{}, err
	}
	return Leader{state.Holder.Metadata, state.Token}, nil
}

// Observe returns who leads, now and after each change, until ctx ends. The parameter every is the
// time between its calls of [Election.Leader]. It never returns an earlier term after a later one,
// and may leave out a short term. If a call fails, it returns the error with the zero Leader, and
// goes on. It ends after ErrUnsupported and after ErrClosed. If the parameter every is 0 or less,
// it returns one error and ends.
func (e *Election) Observe(ctx context.Context, every time.Duration) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if every <= 0 {
			yield(Leader{}, fmt.Errorf("election: Observe at intervals of %v: must be above 0", every))
			return
		}
		var newest uint64 // term
		var last *Leader  // that was returned
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for ctx.Err() == nil {
			now, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				last = nil // what was known is to be confirmed
				if !yield(Leader{}, err) || errors.Is(err, locker.ErrUnsupported) || errors.Is(err, locker.ErrClosed) {
					return
				}
			case now.Term != 0 && now.Term < newest, last != nil && now == *last:
				// A server that has missed what another told, or nothing new.
			default:
				newest, last = max(newest, now.Term), &now
				if !yield(now, nil) {
					return
				}
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}
}
