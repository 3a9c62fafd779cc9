package redisscript

import (
	"context"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
)

// Wait implements driver.Proposer.
func (d *Driver) Wait(req driver.Request, place uint64, woken func(claimed bool)) driver.WaitingLease {
	l := d.newLease(req, d.hub.prefixes[d.hub.kind()], placeText(place))
	l.takes, l.direct = propose, true
	l.waiter.lease, l.waiter.place, l.waiter.tell = l, place, woken
	return l
}

// Propose implements driver.WaitingLease.
func (l *lease) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	a, err := l.askInQueue(ctx, int64(token))
	if err != nil || a.status == granted {
		return false, err
	}
	return a.earlier, driver.ErrHeld
}

// placeText is what the owner of a waiter has that has the same place at several servers.
func placeText(place uint64) kind { return kind(strconv.FormatUint(place, 10) + "/") }

// Known implements driver.WaitingLease.
func (l *lease) Known() bool { return l.there }

// ServerTime implements driver.Proposer.
func (d *Driver) ServerTime() (now time.Time, known bool) {
	r := d.server.reading()
	if r.at.IsZero() {
		return time.Time{}, false
	}
	return time.UnixMicro(r.ahead + micros(time.Now())), true
}
