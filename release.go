package locker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// releaser releases the lease of a hold that has ended, or whatever a failed attempt may have left
// at the backend. Unlock, cleanUp and Close use one each.
type releaser struct {
	hold     *Hold
	ctx      context.Context // parent of the requests' contexts
	deadline time.Time       // when the lease expires, unless its session goes on

	began time.Time // when the first request was sent
	last  time.Time // when the tries that follow the end of life must stop
	tries int
	err   error // of the latest try; "no answer" does not replace an earlier error
}

// try sends one request. It takes at most TTL/4, so that a lost reply leaves time for retries. It
// reports whether the backend has answered: then there is nothing left to release.
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

// untilAnswered retries until the backend has answered. It gives up at the deadline, unless the
// lease outlives that (see goesOn). When life ends it goes on for lastTries, and it stops with the
// Client's background.
func (r *releaser) untilAnswered(life context.Context) (answered bool) {
	for {
		if r.tries > 0 && !r.rest(life) {
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

// rest waits before the next try, and reports whether to make it.
func (r *releaser) rest(life context.Context) bool {
	pause, now := r.pause(), clock.Now()
	left := r.deadline.Sub(now)
	switch {
	case r.ctx.Err() != nil || r.hold.client.background.Err() != nil:
		return false
	case life.Err() != nil:
		if r.last.IsZero() {
			r.last = now.Add(lastTries)
		}
		if min(left, r.last.Sub(now)) <= pause {
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

// cleanUp releases whatever a lost hold, or a failed attempt, may have left at the backend. Calls
// after the first do nothing. Once the Client closes, it gives up after lastTries.
func (h *Hold) cleanUp() {
	if !h.cleaned.Swap(true) {
		r := releaser{hold: h, ctx: context.Background(), deadline: clock.Now().Add(h.ttl)}
		r.untilAnswered(h.client.open)
	}
}

// cleanUpAfter calls cleanUp after d, unless the Client is closed by then, if the lease lasts
// still: by AtLeast, on a session that other holds keep alive, or after an extension of unknown
// outcome. Nobody else may ever release that.
func (h *Hold) cleanUpAfter(d time.Duration) {
	time.AfterFunc(d, func() {
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

// goesOn reports whether the lease outlives its hold, because requests of other holds keep the
// session alive. If no more than the drift allowance is left of it, goesOn waits for that to pass
// before it decides: a request in flight may yet prolong the session, or the Driver may have begun
// to count a little later than the hold.
func (h *Hold) goesOn(life context.Context) bool {
	left := h.lease.Validity()
	if left <= drift(h.ttl) {
		_ = clock.Sleep(life, left)
		left = h.lease.Validity()
	}
	return left > 0
}

// releases is how many holds Close releases concurrently.
const releases = 128

// releaseAll releases the holds of a Client that closes, in rounds, until ctx ends. All are tried
// once before any is retried, because one server that does not answer must not keep the holds of
// others taken. A hold under which work goes on is released when the work has returned. If it has
// not by the end of ctx, the hold is left to expire. The errors name the holds not released.
func (c *Client) releaseAll(ctx context.Context, holds []*Hold) (errs []error) {
	var all, left []*releaser
	var working sync.WaitGroup
	began := clock.Now()
	for _, h := range holds {
		r := &releaser{hold: h, ctx: ctx, deadline: began.Add(closeTimeout)}
		all = append(all, r)
		switch idle := h.untilIdle(); {
		case idle != nil:
			working.Go(func() {
				if r.err = h.awaitWork(ctx, idle); r.err == nil && !h.leaveKept() {
					r.untilAnswered(ctx)
				}
			})
		case !h.leaveKept():
			left = append(left, r)
		}
	}
	for pause := 10 * time.Millisecond; len(left) > 0; pause = min(2*pause, time.Second) {
		half := (closeTimeout - hurry - clock.Since(began)) / 2 // the rest is for retries
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
