package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Wait implements driver.Proposer.
func (d *Driver) Wait(req driver.Request, place uint64, woken func(claimed bool)) driver.WaitingLease {
	l := d.newLease(req, d.hub.prefixes[d.hub.kind()], placeText(place))
	l.direct = true
	l.waiter.lease, l.waiter.place, l.waiter.tell = l, place, woken
	return l
}

// Propose implements driver.WaitingLease.
func (l *lease) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	hub, w, sent := l.driver.hub, &l.waiter, clock.Now()
	if l.owner[0] != polls && hub.refused() {
		if err := l.unsubscribed(ctx); err != nil {
			hub.unanswered(w, sent)
			return false, err
		}
	}
	if !w.entered {
		w.entered = true
		hub.enter(l)
	}
	a, err := l.take(ctx, int64(token))
	w.known = w.known || err == nil || a.status == unknown
	switch {
	case err != nil && !w.known:
		l.waitsNoMore() // it is told of nothing, and need not be released
		return false, err
	case err != nil:
		hub.unanswered(w, sent)
		return false, err
	case a.status == granted:
		l.waitsNoMore()
		return false, nil
	default:
		hub.placed(w, a)
		return a.earlier, driver.ErrHeld
	}
}

// unsubscribed makes l an owner that polls, in the same place, and has the server forget the one that it was: the queue passes over that, for nobody can
// tell it anything.
func (l *lease) unsubscribed(ctx context.Context) error {
	w := &l.waiter
	if w.known {
		if err := l.release(ctx, 0, new(sendings)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	l.waitsNoMore()
	w.known, w.queued = false, false
	l.owner = l.driver.hub.prefixes[polls] + string(placeText(w.place)) + rand.Text()
	l.argOwner = l.owner
	return nil
}

// placeText is what the owner of a waiter has that has the same place at several servers.
func placeText(place uint64) kind { return kind(strconv.FormatUint(place, 10) + "/") }

// Known implements driver.WaitingLease.
func (l *lease) Known() bool { return l.waiter.known }

// waitsNoMore has a lease of Wait not be told any more.
func (l *lease) waitsNoMore() {
	if l.waiter.entered {
		l.waiter.entered = false
		l.driver.hub.leave(&l.waiter)
	}
}

// ServerTime implements driver.Proposer.
func (d *Driver) ServerTime() (now time.Time, known bool) {
	r := d.server.reading()
	if r.at.IsZero() {
		return time.Time{}, false
	}
	return time.UnixMicro(r.ahead + micros(time.Now())), true
}
