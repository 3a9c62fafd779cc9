package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker"
)

// naive is a lock over a server of its own kind, which shares no code with the module's core. With no
// flaw it keeps the contract, by polling.
type naive struct {
	name   string
	ttl    time.Duration
	flaw   string
	renew  bool
	client *naiveClient
	shared bool // its hold is a share, or is to be

	mu   sync.Mutex
	hold *naiveHold // lost or not; nil: none
}

var (
	errName      = errors.New("a name is UTF-8, and not empty")
	errLate      = errors.New("less than half the TTL was left")
	errUndecided = errors.New("the server could not decide")
)

// strict reports whether the lock looks at its own hold before it asks the server. Where it does not, it shows what the server
// does then.
func (l *naive) strict() bool {
	switch l.flaw {
	case "", "SETNX, then EXPIRE, with all that helps but one step", "an owner for each try, and patience", "a TTL of ten seconds at most",
		"renewal ends at its first error", "looks and deletes, back to back", "looks and prolongs, back to back", "looks every 25 ms", "Extend heeds no limit",
		"a connection for each question", "leaves one silent connection at a time", "the first question heeds no ctx":
		return true
	default:
		return takesLate[l.flaw]
	}
}

func newOwner() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

// backPrefix begins the owner of a waiter that was cut off.
const backPrefix = "back"

// owner is a new one for each attempt to hold.
func (l *naive) owner() string {
	switch l.flaw {
	case "owner is the process":
		return "process"
	case "owner is the client":
		return fmt.Sprintf("%p", l.client)
	case "owner is the Locker":
		return fmt.Sprintf("%p", l)
	default:
		return newOwner()
	}
}

func (l *naive) Lock(ctx context.Context) error {
	owner := l.owner()
	for last := error(nil); ; pause(ctx, l.pause()) {
		if ctx.Err() != nil {
			l.forget(ctx, owner)
			return errors.Join(ctx.Err(), context.Cause(ctx), last)
		}
		err := l.take(ctx, owner)
		switch {
		case err == nil, errors.Is(err, locker.ErrLost), errors.Is(err, errName):
			return err
		case errors.Is(err, errLate):
			owner = l.owner()
		case l.flaw == "an owner for each try, and patience" && ctx.Err() == nil && !errors.Is(err, locker.ErrHeld):
			owner = l.owner()
		case l.flaw == "who is back has its turn" && !errors.Is(err, locker.ErrHeld):
			owner = backPrefix + newOwner()
		case l.flaw == "an owner for each try":
			if owner = l.owner(); last != nil && !errors.Is(last, locker.ErrHeld) && errors.Is(err, locker.ErrHeld) {
				return err // it is held by itself
			}
		}
		if err = l.failed(ctx, err); ctx.Err() == nil {
			last = err // and not that of a question that was broken off
		}
	}
}

// failed returns the error of an attempt that did not get the lock.
func (l *naive) failed(ctx context.Context, err error) error {
	switch own := errors.Is(err, locker.ErrHeld) || errors.Is(err, errLate); {
	case l.flaw == "ErrHeld in an outage" && !own:
		return locker.ErrHeld
	case l.flaw == "waits for an answer that was lost" && !own:
		<-ctx.Done()
	}
	return err
}

func (l *naive) pause() time.Duration {
	switch l.flaw {
	case "looks once a TTL":
		return l.ttl
	case "looks every 25 ms":
		return 25 * time.Millisecond
	}
	return 2 * time.Millisecond
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TryLock makes one attempt.
func (l *naive) TryLock(ctx context.Context) error {
	owner := l.owner()
	err := ctx.Err()
	if err == nil {
		err = l.take(ctx, owner)
		if err != nil && l.flaw == "TryLock says ErrHeld in an outage" {
			err = locker.ErrHeld
		}
	}
	if err != nil && !errors.Is(err, locker.ErrHeld) {
		l.forget(ctx, owner)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, ctx.Err(), context.Cause(ctx))
	}
	return err
}

// take asks for the lock once. An owner who has it already, for the answer was lost, is told so again.
func (l *naive) take(ctx context.Context, owner string) error {
	if l.name == "" || !utf8.ValidString(l.name) {
		return errName
	}
	if h := l.current(); h != nil && l.gone(h) && l.strict() {
		return locker.ErrLost
	}
	if h := l.current(); h != nil && l.flaw == "owner set before the take" {
		h.rename(owner)
	}
	q := question{Op: "take", Name: l.name, Owner: owner, TTL: l.ttl, Shared: l.shared}
	switch l.flaw {
	case "SETNX, then EXPIRE", "SETNX, then EXPIRE, with clean-up", "SETNX, then EXPIRE, with all that helps but one step":
		q.TTL = 0
	case "a TTL of ten seconds at most":
		q.TTL = min(l.ttl, 10*time.Second)
	case "looks, then takes, however late":
		if a, err := l.client.ask(ctx, question{Op: "look", Name: l.name, Owner: owner}, l.patience()); err != nil {
			return err
		} else if a.Token != 0 && !a.OK {
			return locker.ErrHeld
		}
	case "TTL in whole seconds":
		q.TTL = l.ttl.Truncate(time.Second)
	case "TTL in tenths of a second":
		q.TTL = l.ttl.Truncate(time.Second / 10)
	case "TTL in multiples of the shortest":
		q.TTL = l.ttl.Truncate(memoryTTL)
	case "who is back has its turn":
		if strings.HasPrefix(owner, backPrefix) {
			q.Op = "seize"
		}
	case "looks, and takes a little later":
		if a, err := l.client.ask(ctx, question{Op: "look", Name: l.name}, l.patience()); err != nil || a.Token != 0 {
			return cmp.Or(err, locker.ErrHeld)
		}
		pause(ctx, 200*time.Microsecond)
		q.Op = "seize"
	}
	before := time.Now()
	a, err := l.client.ask(ctx, q, l.patience())
	if l.flaw == "mints after the take, and counts from then" && a.OK {
		before = time.Now()
		a, err = l.client.ask(ctx, question{Op: "mint", Name: l.name}, l.patience())
	}
	switch {
	case err != nil && l.flaw == "takes an error for a success":
		return l.begin(owner, 1, before)
	case err != nil:
		return err
	case a.Refused:
		return errUndecided
	case !a.OK:
		return locker.ErrHeld
	}
	if strings.HasPrefix(l.flaw, "SETNX, then EXPIRE") {
		pause(ctx, time.Millisecond) // in which much can happen
		if _, err := l.client.ask(ctx, question{Op: "extend", Name: l.name, Owner: owner, TTL: l.ttl}, l.ttl/2); err != nil {
			return err
		}
	}
	err = l.begin(owner, a.Token, before)
	if h := l.current(); l.renew && err == nil {
		l.client.others.Go(func() { l.prolong(ctx, h) })
	}
	return err
}

// patience is how long a take may last.
func (l *naive) patience() time.Duration {
	switch l.flaw {
	case "any validity will do", "counts from the answer", "mints after the take, and counts from then":
		return l.ttl
	}
	return l.ttl / 2
}

// until is the deadline of a hold that was asked for at before.
func (l *naive) until(before time.Time) time.Time {
	if l.flaw == "counts from the answer" {
		before = time.Now()
	}
	return before.Add(l.ttl - l.ttl/100 - 2*time.Millisecond)
}

// begin makes a grant the current hold, unless a lost one awaits its Unlock.
func (l *naive) begin(owner string, token uint64, before time.Time) error {
	until := l.until(before)
	if time.Until(until) < l.ttl/2 && l.flaw != "any validity will do" {
		l.forget(context.Background(), owner)
		return errLate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil && l.strict() {
		l.forget(context.Background(), owner)
		return locker.ErrLost
	}
	l.hold = newHold(owner, token, until, l.flaw != "believes what it knew")
	return nil
}

// forget gives back, in the background, what owner may have got, or may yet get.
func (l *naive) forget(ctx context.Context, owner string) {
	q := question{Op: "release", Name: l.name, Owner: owner, Shared: l.shared}
	switch l.flaw {
	case "no clean-up", "SETNX, then EXPIRE", "a share never expires":
		return
	case "clean-up on the caller's ctx":
		_, _ = l.client.ask(ctx, q, l.ttl)
		return
	}
	l.client.others.Go(func() {
		ctx, cancel := context.WithTimeout(l.client.ctx, 2*l.ttl)
		defer cancel()
		if takesLate[l.flaw] {
			pause(ctx, 20*time.Millisecond) // until what was sent has arrived, unless it is late
		}
		_, _, _ = l.client.insist(ctx, q, l.ttl)
	})
}
