package run

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/show"
)

// waiting tells, on stderr, whom a run waits for.
type waiting struct {
	client   *locker.Client
	names    []string // of the lock, or of all slots
	metadata string
	began    time.Time

	holders string
	since   time.Time // when they were first seen
}

// The first look comes when a free lock would have been granted. After that there is one now and
// then, and a line for each change, and for each minute.
const (
	firstLook = 300 * time.Millisecond
	nextLook  = 2 * time.Second
	repeat    = time.Minute
)

func newWaiting(c *locker.Client, name string, o *Options) *waiting {
	w := &waiting{client: c, names: []string{name}, metadata: o.Metadata, began: time.Now()}
	if o.Slots > 0 {
		w.names = nil
		for slot := range o.Slots {
			w.names = append(w.names, fmt.Sprintf("%s/%d", name, slot))
		}
	}
	return w
}

// tell prints until ctx ends.
func (w *waiting) tell(ctx context.Context) {
	var last string
	var printed time.Time
	for next := firstLook; ; next = nextLook {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
		what, line := w.look(ctx)
		if what != "" && (what != last || time.Since(printed) >= repeat) {
			fmt.Fprintln(os.Stderr, "locker: "+line)
			last, printed = what, time.Now()
		}
	}
}

// look returns the state to report, and the line that reports it: the line has times, which change
// while the state does not. It returns empty strings if there is nothing to report.
func (w *waiting) look(ctx context.Context) (what, line string) {
	var held []string
	var state locker.State
	for _, name := range w.names {
		var err error
		if state, err = w.client.Inspect(ctx, name); err != nil {
			if ctx.Err() != nil {
				return "", ""
			}
			return "error", fmt.Sprintf("waiting: who holds the lock is not known: %v", err)
		}
		if state.Held {
			held = append(held, show.Holders(state))
		}
	}
	now := strings.Join(held, ", ")
	if now != w.holders {
		w.holders, w.since = now, time.Now()
	}
	if now == "" {
		return "", ""
	}
	what = now
	line = fmt.Sprintf("waiting for %v: held by %s", show.Ago(w.began), now)
	if len(w.names) == 1 && !state.Since.IsZero() {
		line += fmt.Sprintf(", for %v", show.Ago(state.Since))
	} else if d := show.Ago(w.since); d > 0 {
		line += fmt.Sprintf(", for at least %v", d)
	}
	if len(w.names) == 1 {
		queue := w.place(state.Waiters)
		what, line = what+queue, line+queue
	}
	return what, line
}

// place returns where we stand in the queue, after a semicolon, as far as the backend tells.
func (w *waiting) place(queue []locker.Participant) string {
	if len(queue) == 0 {
		return ""
	}
	ours := func(p locker.Participant) bool { return p.Metadata == w.metadata }
	i := slices.IndexFunc(queue, ours)
	if i < 0 || slices.ContainsFunc(queue[i+1:], ours) { // with --metadata, others may have the same
		return fmt.Sprintf("; %d in the queue", len(queue))
	}
	return fmt.Sprintf("; place %d of %d in the queue", i+1, len(queue))
}
