package locker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// WithLogger sets the logger for events that no call reports to its caller. By default they are not
// logged. The records are:
//
//	WARN  lock lost              it expired, or the backend said that it had ended. If Close ended
//	                             it, the level is INFO
//	WARN  lock not renewed       a renewal failed; the next ones to fail in a row are not logged
//	INFO  lock renewed again     a renewal succeeded after that
//	INFO  lock released late     a release failed at first: others could not take the lock until now
//	WARN  lock not released      no release succeeded; the lock lasts until it expires
//	INFO  wall clock ahead       the machine may have been frozen: holds are renewed at once
//	WARN  backend may break a promise
//	                             a setting of its servers allows this; once, after the first grant
//
// "lock released late" and "lock not released" have level DEBUG if they are about the clean-up
// after a failed Lock.
//
// A record has some of these attributes: name (without the prefix), token, cause (of the loss),
// held (how long the hold lasted), expires_in, failed (how many renewals), after (how long after
// the first try), ahead (by how much the wall clock is), holds (how many), why (the warning) and
// err, which is the client library's own error. No record has metadata, a URL or a password.
//
// A slow handler delays Close alone, for 5 s at most. Records are handled one after another; the
// time of a record is that of the event. While 10,000 records wait, new ones are dropped; the next
// record has their number as the attribute "dropped".
//
// A nil logger is an error; to report nowhere, leave the option out.
func WithLogger(l *slog.Logger) Option {
	return clientOption(func(c *config) error {
		if l == nil {
			return errors.New("nil logger")
		}
		c.logger = &logger{to: l}
		return nil
	})
}

// logger reports to the program's people what no caller hears of. A nil logger does nothing.
type logger struct {
	to      *slog.Logger
	records reports
	dropped atomic.Int64 // records, since the last that was not
	warned  atomic.Bool  // of what the backend may break
}

// held reports the backend's warnings, the first time that it is called. It does not wait.
func (l *logger) held(h *Hold) {
	if l == nil || l.warned.Swap(true) {
		return
	}
	h.client.spawn(func() {
		warnings, _ := h.client.Warnings(context.Background())
		for _, w := range warnings {
			l.log(slog.LevelWarn, "backend may break a promise", slog.String("why", w))
		}
	})
}

// ended reports a loss.
func (l *logger) ended(h *Hold, e HoldEnd) {
	if l == nil || e.Cause == CauseAbandoned {
		return
	}
	level := slog.LevelWarn
	if e.Cause == CauseClosed {
		level = slog.LevelInfo // by the program itself
	}
	l.log(level, "lock lost", slog.String("name", h.name), slog.Uint64("token", h.token),
		slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held))
}

// renewed reports that renewals begin to fail, and that they succeed again. The caller holds h.mu.
func (l *logger) renewed(h *Hold, r Renewal, due bool) {
	if l == nil {
		return
	}
	name, token := slog.String("name", h.name), slog.Uint64("token", h.token)
	switch {
	case r.Err == nil && h.failed > 0:
		l.log(slog.LevelInfo, "lock renewed again", name, token, slog.Int("failed", h.failed))
		h.failed = 0
	case r.Err != nil && due:
		if h.failed++; h.failed == 1 {
			l.log(slog.LevelWarn, "lock not renewed", name, token,
				slog.Duration("expires_in", h.deadline.Sub(clock.Now())), slog.Any("err", r.Err))
		}
	}
}

// released reports a release that has not succeeded at once.
func (l *logger) released(r *releaser) {
	if l == nil || r.err == nil && r.tries == 1 || errors.Is(r.err, ErrLost) {
		return
	}
	late, never := slog.LevelInfo, slog.LevelWarn
	if r.hold.began.IsZero() {
		late, never = slog.LevelDebug, slog.LevelDebug // perhaps there was nothing; in an outage each attempt leaves one behind
	}
	name, after := slog.String("name", r.hold.name), slog.Duration("after", clock.Since(r.began))
	if r.err == nil {
		l.log(late, "lock released late", name, after)
	} else {
		l.log(never, "lock not released", name, after, slog.Any("err", r.err))
	}
}

// leapt reports that the wall clock has gone ahead while that many holds were due.
func (l *logger) leapt(ahead time.Duration, holds int) {
	if l != nil {
		l.log(slog.LevelInfo, "wall clock ahead", slog.Duration("ahead", ahead), slog.Int("holds", holds))
	}
}

func (l *logger) log(level slog.Level, msg string, attrs ...slog.Attr) {
	record := slog.NewRecord(time.Now(), level, msg, 0) // of now, however late it is handled
	record.AddAttrs(attrs...)
	dropped := l.dropped.Swap(0)
	if dropped > 0 {
		record.AddAttrs(slog.Int64("dropped", dropped))
	}
	if !l.records.add(maxReports, func() {
		// Enabled, too, may take its time.
		if h := l.to.Handler(); h.Enabled(context.Background(), level) {
			_ = h.Handle(context.Background(), record)
		}
	}) {
		l.dropped.Add(dropped + 1)
	}
}
