package locker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// releaser releases the lease of a hold that is over, or whatever there is of a claim. An Unlock,
// the clean-up after a loss or a failed attempt, and Close each have one.
type releaser struct {
	hold     *Hold
	ctx      context.Context // whose values the requests have, and with which they end
	deadline time.Time       // by which the lease expires, unless it is of a session that goes on

	began time.Time // when the first request was sent
	tries int
	err   error // of the latest try; if it was not answered, that of an earlier one which says more
}

// try makes one request. It takes at most TTL/4, so that a lost reply leaves time for other tries.
// It reports whether the backend has answered: then there is nothing left to release.
func (r *releaser) try(patience time.Duration) (answered bool) {
	h := r.hold
	if r.tries++; r.tries == 1 {
		r.began = clock.Now()
	}
	req := newRequest(r.ctx, h.client.background, min(h.ttl/4, patience))
	defer req.end()
	err := req.explain(h.lease.Release(req))
	if r.err == nil || !silent(err) {
		r.err = err
	}
	if r.answered() {
		h.client.observers.log.released(r)
	}
	return r.answered()
}

func (r *releaser) answered() bool {
	return r.tries > 0 && (r.err == nil || errors.Is(r.err, ErrLost))
}

// untilAnswered tries until the backend has answered. It gives up at the deadline, unless the lease
// is known to go on then. After the end of life it tries for a moment more, and never after Close.
func (r *releaser) untilAnswered(life context.Context) (answered bool) {
	var last time.Time // when the tries after the end of life end
	for {
		if r.tries > 0 && !r.rest(life, &last) {
			r.hold.client.observers.log.released(r)
			return false
		}
		patience := r.deadline.Sub(clock.Now())
		if patience <= 0 {
			patience = r.hold.ttl
		}
		if r.try(patience) {
			return true
		}
	}
}

// rest waits for the time of the next try, and reports whether there is to be one.
func (r *releaser) rest(life context.Context, last *time.Time) bool {
	pause, now := r.pause(), clock.Now()
	left := r.deadline.Sub(now)
	switch {
	case r.ctx.Err() != nil || r.hold.client.background.Err() != nil:
		return false
	case life.Err() != nil:
		if last.IsZero() {
			*last = now.Add(lastTries)
		}
		if min(left, last.Sub(now)) <= pause {
			return false
		}
		time.Sleep(pause)
		return true
	case left > 0:
		pause = min(pause, left)
	}
	_ = clock.Sleep(life, pause)
	return life.Err() != nil || clock.Now().Before(r.deadline) || r.hold.goesOn(life)
}

// lastTries is how long untilAnswered goes on after the end of life.
const lastTries = 500 * time.Millisecond

// pause returns how long to wait before the next try: about TTL/100 after the first, and twice as
// long each time, up to a second.
func (r *releaser) pause() time.Duration {
	pause := min(max(r.hold.ttl/100, time.Millisecond), 50*time.Millisecond) << min(max(r.tries-1, 0), 10)
	pause = min(pause, time.Second)
	return pause/2 + clock.Random(pause)
}

// cleanUp releases, once, what may be left at the backend of a hold that was lost, or of one that
// has never begun because its attempt failed. Once the Client is closing it hurries.
func (h *Hold) cleanUp() {
	if !h.cleaned.Swap(true) {
		r := releaser{hold: h, ctx: context.Background(), deadline: clock.Now().Add(h.ttl)}
		r.untilAnswered(h.client.open)
	}
}

// cleanUpAfter cleans up a moment after the deadline of a hold that was not released, if its lease
// goes on, or may: on a session that others share, or after an extension that nobody heard of.
// Nobody may ever unlock it. Other leases expire at the backend by themselves.
func (h *Hold) cleanUpAfter(deadline time.Time) {
	time.AfterFunc(deadline.Sub(clock.Now())+drift(h.ttl), func() {
		c := h.client
		if c.begin() != nil {
			return
		}
		defer c.calls.Done()
		if h.extendInDoubt.Load() || h.goesOn(c.open) {
			h.cleanUp()
		}
	})
}

// goesOn reports whether the lease lasts though the time of the hold is over: its session does, by
// the requests of other holds. If no more than the allowance for drift is left, it waits for the end
// of that: a request under way may still prolong the session, or the Driver began to count a little
// later than the hold.
func (h *Hold) goesOn(life context.Context) bool {
	left := h.lease.Validity()
	if left <= drift(h.ttl) {
		_ = clock.Sleep(life, left)
		left = h.lease.Validity()
	}
	return left > 0
}

// releases is how many of its holds a Client that closes releases at a time.
const releases = 128

// releaseAll releases the holds of a Client that closes, a few at a time, until ctx ends. Each is
// tried once before any is tried again: one server that does not answer must not keep the others'
// holds taken. A hold under which work goes on is released when that has returned. If it has not by
// the end of ctx, the hold is left to expire. The errors name what was not released.
func (c *Client) releaseAll(ctx context.Context, holds []*Hold) (errs []error) {
	var all, left []*releaser
	var working sync.WaitGroup
	began := clock.Now()
	for _, h := range holds {
		r := &releaser{hold: h, ctx: ctx, deadline: began.Add(closeTimeout)}
		all = append(all, r)
		switch works := h.works(); {
		case works:
			working.Go(func() {
				if r.err = h.awaitWork(ctx); r.err == nil && !h.leaveKept() {
					r.untilAnswered(ctx)
				}
			})
		case !h.leaveKept():
			left = append(left, r)
		}
	}
	for pause := 10 * time.Millisecond; len(left) > 0; pause = min(2*pause, time.Second) {
		half := (closeTimeout - hurry - clock.Since(began)) / 2 // others are to be tried again in the rest
		patience := max(half/time.Duration(len(left)/releases+1), 20*time.Millisecond)
		places := make(chan struct{}, releases)
		var round sync.WaitGroup
		for _, r := range left {
			places <- struct{}{}
			round.Go(func() {
				r.try(patience)
				<-places
			})
		}
		round.Wait()
		left = slices.DeleteFunc(left, (*releaser).answered)
		if len(left) > 0 && clock.Sleep(ctx, pause/2+clock.Random(pause)) != nil {
			break
		}
	}
	for _, r := range left {
		c.observers.log.released(r)
	}
	working.Wait()
	for _, r := range all {
		if !errors.Is(r.err, ErrLost) {
			errs = append(errs, wrap("unlock", r.hold.name, r.err))
		}
	}
	return errs
}
