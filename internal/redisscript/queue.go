package redisscript

import (
	"context"
	"errors"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// askInQueue asks for the lock, or a place in its queue, from which l is told. number is that of
// take.
func (l *lease) askInQueue(ctx context.Context, number int64) (answer, error) {
	hub, w, sent := l.driver.hub, &l.waiter, clock.Now()
	if l.owner[0] != polls && hub.refused() {
		if err := l.unsubscribed(ctx); err != nil {
			hub.unanswered(w, sent)
			return answer{}, err
		}
	}
	if !w.entered {
		w.entered = true
		hub.enter(l)
	}
	a, err := l.take(ctx, number)
	l.there = l.there || err == nil || a.status == unknown
	switch {
	case err != nil && !l.there:
		l.waitsNoMore() // it is told of nothing, and need not be released
	case err != nil:
		hub.unanswered(w, sent)
	case a.status == granted:
		l.waitsNoMore()
	default:
		hub.placed(w, a)
	}
	return a, err
}

// unsubscribed makes l an owner that polls, in the same place, and has the server forget the one
// that it was: the queue passes over that, for nobody can tell it anything.
func (l *lease) unsubscribed(ctx context.Context) error {
	prefixes := l.driver.hub.prefixes
	if l.there {
		if err := l.release(ctx, 0, new(sendings)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	l.waitsNoMore()
	l.there, l.waiter.queued = false, false
	l.owner = prefixes[polls] + l.owner[len(prefixes[polls]):] // all are as long
	l.argOwner = l.owner
	return nil
}

// waitsNoMore has l not be told any more.
func (l *lease) waitsNoMore() {
	if l.waiter.entered {
		l.waiter.entered = false
		l.driver.hub.leave(&l.waiter)
	}
}

// What the owner of a waiter begins with; see queue.lua.
const (
	subscribes        = 'p'
	subscribesSharded = 's'
	polls             = '-'
)

// kind returns what the owner of a waiter begins with.
func (h *hub) kind() byte {
	switch {
	case h.refused():
		return polls
	case h.runner.Sharded():
		return subscribesSharded
	default:
		return subscribes
	}
}

// decline hands over a claim for an owner that waits no more. If that fails the claim expires.
func (d *Driver) decline(ctx context.Context, keys []any, owner string) {
	script := release
	if strings.Contains(owner, string(shared)) {
		script = releaseShared
	}
	_, _ = d.sender.call(ctx, script, keys, claimMark+owner, 1, 0)
}
