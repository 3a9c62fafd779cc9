package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/keyed"
)

var keyedScenarios = []scenario{{
	name:    "keyed: one of each name",
	promise: "One goroutine of all programs holds a name, and the tokens of a name rise.",
	check:   oneOfEachName,
}, {
	name:    "keyed: no other ends a hold",
	promise: "Unlock in another program returns ErrNotHeld, and leaves the hold as it is.",
	check:   noOtherEnds,
}, {
	name:    "keyed: Unlock hands over",
	promise: "After Unlock the next gets the name long before the hold would expire, in the same program or in another.",
	check:   unlockHandsOver,
}, {
	name:    "keyed: a lost lock is told, and taken anew",
	promise: "Extend returns ErrLost after a loss; Relock waits for the one who holds the name now, and has a larger token.",
	check:   takenAnew,
}, {
	name:     "keyed: a silent server",
	promise:  "By its deadline a hold has no token, even when the backend is unreachable, and when it is back Relock takes the name anew.",
	disturbs: true,
	check:    silentKeyed,
}}

func oneOfEachName(e *env) error {
	names := []string{e.fresh("a"), e.fresh("b")}
	turns, ctx := newTurns(), e.within(e.patient)
	var goroutines []func() error
	for range 3 {
		l := keyed.New(e.client(e.long))
		for i := range 4 {
			name := names[i%2]
			goroutines = append(goroutines, func() error {
				for range 4 {
					if err := turn(ctx, l, name, turns); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return all(goroutines...)
}

// turn is inside name for a moment.
func turn(ctx context.Context, l *keyed.Locks, name string, turns *turns) (err error) {
	if err := l.Lock(ctx, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock(context.WithoutCancel(ctx), name)) }()
	if err := turns.enter(name, l.FencingToken(name)); err != nil {
		return err
	}
	defer turns.leave(name)
	time.Sleep(time.Millisecond)
	return nil
}

// locked returns the locks of a program that holds name for ttl.
func (e *env) locked(name string, ttl time.Duration, opts ...locker.Option) (*keyed.Locks, error) {
	l := keyed.New(e.client(ttl, opts...))
	return l, e.lock(l, name)
}

// lock is l.Lock for as long as a busy machine may need.
func (e *env) lock(l *keyed.Locks, name string) error {
	_, err := persist(e, func(ctx context.Context) (any, error) { return nil, l.Lock(ctx, name) })
	return err
}

func noOtherEnds(e *env) error {
	name := e.fresh("a")
	l, err := e.locked(name, e.long)
	if err != nil {
		return err
	}
	other := keyed.New(e.client(e.long))
	if err := other.Unlock(e.Context(), name); !errors.Is(err, locker.ErrNotHeld) {
		return fmt.Errorf("another program holds it, and Unlock returned %v", err) //nolint:errorlint // may be nil
	}
	if err := other.TryLock(e.within(e.patient), name); !errors.Is(err, locker.ErrHeld) {
		return fmt.Errorf("another program holds it, and TryLock returned %v", err) //nolint:errorlint // may be nil
	}
	return l.Unlock(e.Context(), name)
}

func unlockHandsOver(e *env) error {
	name := e.fresh("a")
	here, err := e.locked(name, e.long)
	if err != nil {
		return err
	}
	there := keyed.New(e.client(e.long))
	holder := here
	for _, next := range []*keyed.Locks{here, there, there, here} {
		granted, ctx := make(chan error, 1), e.within(e.patient)
		go func() { granted <- next.Lock(ctx, name) }()
		time.Sleep(50 * time.Millisecond) // for it to wait: no promise needs that
		if err := holder.Unlock(e.Context(), name); err != nil {
			return err
		}
		if err := <-granted; err != nil {
			return fmt.Errorf("it was unlocked, and the next: %w", err)
		}
		holder = next
	}
	return holder.Unlock(e.Context(), name)
}

func takenAnew(e *env) error {
	name := e.fresh("a")
	here, err := e.locked(name, e.TTL, locker.WithoutRenewal())
	if err != nil {
		return err
	}
	there, err := e.locked(name, e.long)
	if err != nil {
		return fmt.Errorf("a hold of %v has not expired: %w", e.TTL, err)
	}
	if err := here.Extend(e.within(e.patient), name); !errors.Is(err, locker.ErrLost) {
		return fmt.Errorf("another holds it, and Extend returned %v", err) //nolint:errorlint // may be nil
	}
	now := there.FencingToken(name)
	if err := here.Relock(e.within(300*time.Millisecond), name); err == nil {
		return errors.New("another holds it, and Relock returned nil")
	}
	if err := there.Unlock(e.Context(), name); err != nil {
		return err
	}
	return e.again(here, name, now)
}

// again returns an error unless Relock takes a name that was lost, under a token larger than last, and Unlock frees it.
func (e *env) again(l *keyed.Locks, name string, last uint64) error {
	_, err := persist(e, func(ctx context.Context) (any, error) { return nil, l.Relock(ctx, name) })
	if err != nil {
		return err
	}
	if token := l.FencingToken(name); token != 0 && token <= last {
		return fmt.Errorf("token %d came after token %d", token, last)
	}
	_ = l.Unlock(e.Context(), name) // on a busy machine a hold of one TTL may be over
	return e.free(e.client(e.long), name)
}

func silentKeyed(e *env) error {
	name, c := e.fresh("a"), e.client(e.TTL)
	l := keyed.New(c)
	if err := e.lock(l, name); err != nil {
		return err
	}
	last := l.FencingToken(name)
	resume := e.StopServers(e.TB)
	defer resume()
	time.Sleep(e.TTL + time.Millisecond) // what was under way when they stopped lasts no longer
	if token := l.FencingToken(name); token != 0 {
		return fmt.Errorf("the servers have been silent for a TTL, and FencingToken returned %d", token)
	}
	resume()
	if err := e.answers(c); err != nil {
		return err
	}
	return e.again(l, name, last)
}
