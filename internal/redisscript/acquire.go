package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Claim implements driver.Driver. The owner of one that waits says how it can be told.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	how, prefix := alone, ""
	if req.Shared {
		how = shared
	}
	if req.Wake != nil {
		prefix = d.hub.prefixes[d.hub.kind()]
	}
	l := d.newLease(req, prefix, how)
	l.waiter.wakes = req.Wake
	return l
}

// noLook is when a waiter looks by itself: not at all, for the hub has the first look for all.
const noLook = time.Hour

// Ask takes the lock, or a place in its queue, in one round trip. A waiter asks again when it is
// woken: because the lock is claimed for it, or because it is the first of this Driver's waiters
// and has to look whether the queue still stands.
func (l *lease) Ask(ctx context.Context) (next time.Duration, err error) {
	if err := l.awaitFormer(ctx); err != nil {
		return 0, err
	}
	a, err := l.ask(ctx, int64(l.waiter.place))
	if err != nil || a.status == granted {
		return 0, err
	}
	return noLook, a.heldBy()
}

// ask asks for the lock, or for a place in its queue if l waits. number is that of take.
func (l *lease) ask(ctx context.Context, number int64) (answer, error) {
	if err := l.driver.CheckTTL(l.ttl); err != nil {
		return answer{}, err
	}
	if l.waiter.waits() {
		return l.askInQueue(ctx, number)
	}
	a, err := l.take(ctx, number)
	l.there = l.there || a.status == granted || a.status == unknown
	return a, err
}

// kind is what an owner that has no place in its name has there instead.
type kind string

const (
	alone  kind = ""
	shared kind = "~" // see queue.lua
)

// newLease returns a lease with a fresh owner: 130 random bits behind a prefix and a place, or its kind.
func (d *Driver) newLease(req driver.Request, prefix string, place kind) *lease {
	l := &lease{driver: d, mark: d.marks.of(req.Name), ttl: req.TTL, metadata: req.Metadata, takes: take}
	random := rand.Text()
	if place == shared {
		l.takes, l.metadata = takeShared, "" // that is in its owner
		l.shared.Store(true)
		if req.Metadata != "" {
			random += aboutMark + req.Metadata
		}
	}
	l.keys, l.owner = keysAnd(req.Name, prefix, string(place), random)
	l.argOwner = l.owner
	return l
}

// take runs a take script: l is granted, or held by another, or there is an error. The answer's
// status is unknown if the script may have run in spite of the error. number is a proposed token, or
// or the place of an owner that waits.
//
// A request that arrives late gets what is left of the TTL, and one that arrives too late nothing. Where the server's clock is not
// known the first is too late in any case, and brings it.
func (l *lease) take(ctx context.Context, number int64) (answer, error) {
	d := l.driver
	server := d.server.reading()
	for range 2 {
		sent := clock.Now()
		by := server.due(ctx, sent, l.ttl)
		reply := l.send(ctx, l.takes, l.keys[:], l.argOwner, d.expiryArg(l.ttl), by.arg(l.mark, number), l.metadata)
		if reply.MayHaveRun {
			return answer{status: unknown}, reply.Err
		}
		if reply.Err != nil {
			return answer{status: late}, reply.Err
		}
		a, err := parseAnswer(reply.Value, number)
		if err != nil {
			return a, err
		}
		l.known = true
		server = d.server.saw(a.now, sent)
		if a.status == granted {
			l.granted(ctx, a, sent, by)
		}
		if a.status != late {
			return a, nil
		}
		// Late by an estimate of the server's clock that may be wrong: this reply has brought it up to date.
	}
	return answer{status: late}, errors.New("the request reached the server after its time")
}

// granted takes in a grant that was to arrive by that time.
func (l *lease) granted(ctx context.Context, a answer, sent time.Time, by due) {
	l.token.Store(uint64(a.token))
	l.mark.saw(a)
	late := by.late(a.now)
	l.lasts(sent, l.ttl-late)
	if by.whole > 0 && late > clock.Since(sent) {
		// Nothing arrives later than its answer: the reading was of another server, as in a Cluster, or of before the clock was set.
		_ = l.Extend(ctx, l.ttl) // if that fails, the hold is shorter
	}
}
