package thirdparty

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
)

// dialRueidislock has one server, and the settings that the package's own documentation gives for one. Without
// renewal the next one is due long after the end.
func dialRueidislock(addr string, ttl time.Duration, renew bool) (rueidislock.Locker, error) {
	o := rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   ttl, // an attempt that overruns it leaves its waiter asleep: see the findings
	}
	if !renew {
		o.ExtendInterval = time.Hour
	}
	return rueidislock.NewLocker(o)
}

func newRueidislock(l rueidislock.Locker, name string) locker.Locker {
	type take = func(context.Context, string) (context.Context, context.CancelFunc, error)
	// The hold ends with the ctx that it was taken with, which is why that is not the caller's.
	with := func(ctx context.Context, take take) (*hold, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, end)
		held, release, err := take(life, name)
		if err != nil {
			stop()
			end()
			if errors.Is(err, rueidislock.ErrNotLocked) {
				err = fmt.Errorf("%w: %w", locker.ErrHeld, err)
			}
			return nil, err
		}
		if !stop() {
			release()
			return nil, ctx.Err()
		}
		return rueidislockHold(held, func() { release(); end() }), nil
	}
	return trier{&adapter{
		lock: func(ctx context.Context) (*hold, error) { return with(ctx, l.WithContext) },
		try:  func(ctx context.Context) (*hold, error) { return with(ctx, l.TryWithContext) },
	}}
}

// rueidislockHold is one that renews itself: nothing is left for Extend but to say whether it lasts. Nor is there
// an answer to a release.
func rueidislockHold(held context.Context, release func()) *hold {
	return &hold{
		extend:  func(context.Context) error { return nil },
		release: func(context.Context) error { release(); return nil },
		lost:    func() bool { return held.Err() != nil },
	}
}
