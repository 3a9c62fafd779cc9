package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

// waiting tells, on stderr, whom a run waits for.
type waiting struct {
	client   *locker.Client
	names    []string // of the lock, or of all slots
	metadata string
	began    time.Time
	stop     chan struct{}
	stopped  chan struct{}

	before  map[string]bool // IDs that waited before us; nil: not known
	own     string          // our ID in the queue, if it is known
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

func newWaiting(c *locker.Client, name string, o *runOptions) *waiting {
	w := &waiting{client: c, names: []string{name}, metadata: o.metadata, began: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	if o.slots > 0 {
		w.names = nil
		for slot := range o.slots {
			w.names = append(w.names, fmt.Sprintf("%s/%d", name, slot))
		}
		return w
	}
	if s, err := c.Inspect(context.Background(), name); err == nil { // half a TTL at most
		w.before = map[string]bool{}
		for _, p := range s.Waiters {
			w.before[p.ID] = true
		}
	}
	return w
}

// tell prints until end is called or ctx ends.
func (w *waiting) tell(ctx context.Context) {
	defer close(w.stopped)
	var last string
	var printed time.Time
	for next := firstLook; ; next = nextLook {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return
		case <-w.stop:
			return
		}
		what, line := w.look(ctx)
		if what != "" && (what != last || time.Since(printed) >= repeat) {
			fmt.Fprintln(os.Stderr, "locker: "+line)
			last, printed = what, time.Now()
		}
	}
}

// end has tell return.
func (w *waiting) end() {
	close(w.stop)
	<-w.stopped
}

// look returns what is to be told of, and in which words: they have times, which change. It returns
// empty strings if there is nothing to tell.
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
			held = append(held, holders(state))
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
	line = fmt.Sprintf("waiting for %v: held by %s", ago(w.began), now)
	if len(w.names) == 1 && !state.Since.IsZero() {
		line += fmt.Sprintf(", for %v", ago(state.Since))
	} else if d := ago(w.since); d > 0 {
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
	if w.own == "" {
		w.own = w.find(queue)
	}
	i := slices.IndexFunc(queue, func(p locker.Participant) bool { return w.own != "" && p.ID == w.own })
	if i < 0 {
		return fmt.Sprintf("; %d in the queue", len(queue))
	}
	return fmt.Sprintf("; place %d of %d in the queue", i+1, len(queue))
}

// find returns the ID of the one waiter that can be us: it has our metadata, or, where a queue has
// none, it is the only one that came since we did.
func (w *waiting) find(queue []locker.Participant) string {
	var ours []string
	for _, p := range queue {
		if p.Metadata == w.metadata || p.Metadata == "" && w.before != nil && !w.before[p.ID] {
			ours = append(ours, p.ID)
		}
	}
	if len(ours) != 1 {
		return ""
	}
	return ours[0]
}

// ago returns how long ago t was, to a tenth of a second at first, and then to a second.
func ago(t time.Time) time.Duration {
	d := time.Since(t)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
