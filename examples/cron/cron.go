package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

// cron is one of many processes that are to run a job once a tick. What it does is not what comes to mind first: at each
// tick TryLock, run the job, Unlock. A machine whose clock is late by more than the job takes finds the lock
// free, and runs the tick again. Nor does it help to have a lock for each tick and to keep it for a while: a holder that dies
// leaves it free, and a clock may be later than any while.
//
// So the lock is to the end that one at a time looks and runs. What is done is known by a record, which outlives the
// lock, and which every process looks at first. A tick is
//
//   - never run twice at the same time, as far as the lock goes (see Client.Guarantees);
//   - never run again once it is recorded, however wrong the clocks are;
//   - run again if its process dies, or loses the lock, before it was recorded: by another who waits for the lock. A job that must
//     not happen twice even then has to look at the token itself, as the record does.
type cron struct {
	lock   *locker.Mutex // one for the job, not one for each tick
	record record
	every  time.Duration
	run    func(ctx context.Context, tick time.Time) error // the job; ctx ends when the lock is lost
	now    func() time.Time                                // the machine's clock
	say    func(format string, args ...any)
}

// serve runs the job at each tick at which no other process has, until ctx ends. A tick that is missed, since the one before
// took too long, is left out.
func (c cron) serve(ctx context.Context) error {
	for {
		tick := c.now().Truncate(c.every).Add(c.every)
		select {
		case <-time.After(tick.Sub(c.now())):
		case <-ctx.Done():
			return nil
		}
		ran, err := c.once(ctx, tick)
		switch {
		case errors.Is(err, locker.ErrClosed), errors.Is(err, locker.ErrUnsupported):
			return err // and so it would be for ever
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil
		case err != nil:
			c.say("%s failed: %v", clockTime(tick), err)
		case !ran:
			c.say("%s is done already", clockTime(tick))
		}
	}
}

// once runs the job unless tick is done, or a later one. It waits for a process that is running it, and takes over from one
// that dies meanwhile.
func (c cron) once(ctx context.Context, tick time.Time) (ran bool, err error) {
	err = c.lock.Do(ctx, func(ctx context.Context) error {
		token := c.lock.FencingToken()
		last, err := c.record.begin(ctx, token)
		if err != nil {
			return err
		}
		if ahead := last.Sub(c.now()); ahead > c.every {
			return fmt.Errorf("no tick runs for %v, as a later one is on record: a clock is wrong, this one or another", ahead)
		}
		if !tick.After(last) {
			return nil
		}
		c.say("%s runs, under token %d", clockTime(tick), token)
		if err := c.run(ctx, tick); err != nil {
			return err // not recorded: the next in line tries again
		}
		ran = true
		return c.record.finish(context.WithoutCancel(ctx), token, tick) // it was run, whatever has ended meanwhile
	})
	return ran, err
}

func clockTime(tick time.Time) string { return tick.Format("15:04:05.0") }
