package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

// uneven is a TTL above the shortest that comes out shorter where it is cut to tenths of a second, or to multiples of the
// shortest, and where it is cut or rounded to seconds: by so much that a busy machine shows it.
func uneven(shortest time.Duration) time.Duration {
	const tenth, above = time.Second / 10, time.Second / 4
	first := max(shortest, time.Second).Truncate(tenth) + tenth*17/20
	for ttl := first; ttl < 3*first; ttl += tenth {
		seconds, multiples := ttl%time.Second, ttl%shortest
		if ttl > shortest && seconds > above && seconds < time.Second/2 && multiples >= min(above, shortest/2) {
			return ttl
		}
	}
	return first.Truncate(time.Second) + time.Second + above + tenth*7/20 // of the shortest few are multiples that matter
}

// A TTL that is long enough to be above what people think of as a good limit, and for how long it
// is looked at: half of it is assured.
const (
	longTTL  = 24 * time.Second
	longLook = 11 * time.Second
)

// wraps are TTLs that come out short, or below 0, where milliseconds or microseconds are counted in
// 32 bits.
var wraps = []time.Duration{time.Hour, 1<<32*time.Microsecond + time.Second, 30 * 24 * time.Hour, 1<<32*time.Millisecond + time.Second}

func keepsLongTTL(e *env) {
	looks := func(ttl, look time.Duration) func() {
		return func() {
			e, name := e.story(), e.name()
			b := e.party("B", name, e.long)
			a, refusal := e.offered("A", name, e.lifetime(ttl))
			switch {
			case refusal == "":
				a.excludes(b, look)
				a.drop()
			case ttl < wraps[0]:
				e.skip(refusal)
			}
		}
	}
	stories := []func(){looks(max(longTTL, e.long), longLook)}
	for _, ttl := range wraps {
		stories = append(stories, looks(ttl, longLook/4))
	}
	e.together(stories...)
}

// offered is a party of a TTL that the harness or the Locker may refuse, or the refusal. It holds the
// lock.
func (e *env) offered(who, name string, ttl time.Duration) (_ *party, refusal string) {
	a, refusal := e.offer(who, name, ttl)
	if a == nil {
		return nil, "the Harness makes no Locker with a TTL of " + ttl.String() + ". The error: " + refusal
	}
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	err := a.noted(func() error { return a.call("Lock", 2*e.patience, func() error { return a.l.Lock(ctx) }) })
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, locker.ErrHeld):
		e.doubtf("%s's Lock of a free lock, for %v: %v", who, ttl, err)
	case err != nil:
		return nil, "the Locker refuses a TTL of " + ttl.String() + ": " + err.Error()
	}
	return a, ""
}

// keepsUnevenTTL has B ask again and again until the TTL is nearly over: one that waits may look
// now and then only.
func keepsUnevenTTL(e *env) {
	name, ttl := e.name(), uneven(e.ttl)
	b := e.party("B", name, e.long)
	before := time.Now()
	if _, refusal := e.offered("A", name, ttl); refusal != "" {
		e.skip(refusal)
	}
	granted, least := time.Now(), ttl-drift(ttl)
	err := b.lockWithin(settle / 2)
	for err != nil && time.Since(before) < least {
		err = b.lockWithin(settle / 2)
	}
	if err != nil {
		err = b.lockWithin(time.Until(granted.Add(ttl + time.Second + slack(ttl))))
	}
	if err != nil {
		e.doubtf("B's Lock, %v after A took the lock for %v and was heard of no more: %v", time.Since(granted), ttl, err)
	}
	if held := time.Since(before); held < least {
		e.doubtf("B got the lock %v after A asked for it, for %v", held, ttl)
	}
	b.release()
}
