package locker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// maxReports is how many reports wait for a handler that is slow, or stuck, before others are dropped.
const maxReports = 10_000

// reports makes reports one after another, in a goroutine that is there while there are any: so
// nothing that is to be reported, such as the loss of many holds, waits for a slow handler.
type reports struct {
	mu      sync.Mutex
	waiting []func()
	running bool
	closed  bool
	work    sync.WaitGroup // of the goroutine
}

// add has report called after those that were added before. It returns false, and drops it, if limit of them
// wait already; and does nothing once closed.
func (r *reports) add(limit int, report func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return true
	}
	if len(r.waiting) >= limit {
		return false
	}
	r.waiting = append(r.waiting, report)
	if !r.running {
		r.running = true
		r.work.Go(r.run)
	}
	return true
}

func (r *reports) run() {
	for {
		r.mu.Lock()
		batch := r.waiting
		r.waiting = nil
		r.running = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, report := range batch {
			report()
		}
	}
}

// close waits for what has been added, or until ctx ends, which is false.
func (r *reports) close(ctx context.Context) bool {
	r.mu.Lock()
	r.closed = true
	running := r.running
	r.mu.Unlock()
	if !running {
		r.work.Wait() // for its very end; ctx may have ended before us
		return true
	}
	return returns(ctx, r.work.Wait)
}

// log reports to the program's people what no caller hears of.
func (c *Client) log(level slog.Level, msg string, attrs ...slog.Attr) {
	logger := c.config.logger
	if logger == nil {
		return
	}
	record := slog.NewRecord(time.Now(), level, msg, 0) // of now, however late it is handled
	record.AddAttrs(attrs...)
	dropped := c.unlogged.Swap(0)
	if dropped > 0 {
		record.AddAttrs(slog.Int64("dropped", dropped))
	}
	if !c.logs.add(maxReports, func() {
		// Enabled, too, may take its time.
		if h := logger.Handler(); h.Enabled(context.Background(), level) {
			_ = h.Handle(context.Background(), record)
		}
	}) {
		c.unlogged.Add(dropped + 1)
	}
}

func (h *Hold) log(level slog.Level, msg string, attrs ...slog.Attr) {
	h.client.log(level, msg, append([]slog.Attr{slog.String("name", h.name), slog.Uint64("token", h.token)}, attrs...)...)
}

func (h *Hold) logLost(e HoldEnd) {
	level := slog.LevelWarn
	if e.Cause == CauseClosed {
		level = slog.LevelInfo // by the program itself
	}
	h.log(level, "lock lost", slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held))
}

// logNotRenewed logs that renewals begin to fail. The caller holds h.mu.
func (h *Hold) logNotRenewed(err error) {
	if h.failed++; h.failed == 1 {
		h.log(slog.LevelWarn, "lock not renewed",
			slog.Duration("expires_in", h.deadline.Sub(clock.Now())), slog.Any("err", err))
	}
}

// logRenewed logs that they succeed again. The caller holds h.mu.
func (h *Hold) logRenewed() {
	if h.failed > 0 {
		h.log(slog.LevelInfo, "lock renewed again", slog.Int("failed", h.failed))
		h.failed = 0
	}
}

// logOutcome logs a release that has not succeeded at once.
func (r returning) logOutcome(err error, tries int, began time.Time) {
	late, never := slog.LevelInfo, slog.LevelWarn
	if r.hold.began.IsZero() {
		late, never = slog.LevelDebug, slog.LevelDebug // perhaps there was nothing; in an outage each attempt leaves one behind
	}
	name, after := slog.String("name", r.hold.name), slog.Duration("after", clock.Since(began))
	switch {
	case err == nil && tries > 1:
		r.hold.client.log(late, "lock released late", name, after)
	case err != nil && !errors.Is(err, ErrLost):
		r.hold.client.log(never, "lock not released", name, after, slog.Any("err", err))
	}
}
