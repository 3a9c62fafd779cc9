package redisscript

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// Candidate implements quorum.Node.
func (d *Driver) Candidate(req driver.Request, place uint64, woken func(claimed bool)) quorum.Candidate {
	prefix, how := "", alone
	if woken != nil {
		prefix, how = d.hub.prefixes[d.hub.kind()], placeText(place)
	}
	l := d.newLease(req, prefix, how)
	l.takes, l.direct = propose, true
	if woken != nil {
		l.waiter.lease, l.waiter.place, l.waiter.tell = l, place, woken
	}
	return l
}

// Propose implements quorum.Candidate.
func (l *lease) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	if token == 0 || token >= 1<<tokenBits {
		return false, fmt.Errorf("%w: proposed token %d: Redis takes 1 to 2^53-1", driver.ErrUnsupported, token)
	}
	a, err := l.ask(ctx, int64(token))
	if err != nil || a.status == granted {
		return false, err
	}
	return a.earlier, a.heldBy()
}

// placeText is what the owner of a waiter has that has the same place at several servers.
func placeText(place uint64) kind { return kind(strconv.FormatUint(place, 10) + "/") }

// Known implements quorum.Candidate.
func (l *lease) Known() bool { return l.there }

// ServerTime implements quorum.Node.
func (d *Driver) ServerTime() (now time.Time, known bool) {
	r := d.server.reading()
	if r.at.IsZero() {
		return time.Time{}, false
	}
	return time.UnixMicro(r.ahead + micros(time.Now())), true
}
