package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

// rwParty is a party that takes shares, too.
func (e *env) rwParty(who, name string, ttl time.Duration) *party {
	l := e.rwLocker(name, ttl)
	p := e.using(l, who, name, ttl)
	p.rw = l
	return p
}

// rwParties are so many processes that contend for one name, called A, B and so on.
func (e *env) rwParties(n int) []*party {
	name := e.name()
	all := make([]*party, n)
	for i := range all {
		all[i] = e.rwParty(string(rune('A'+i)), name, e.long)
	}
	return all
}

// ordered reports whether the Lockers are said to be first come, first served.
func (e *env) ordered() bool { return e.h.hasQueue() }

// rwTrio is three of them.
func (e *env) rwTrio() (a, b, c *party) {
	all := e.rwParties(3)
	return all[0], all[1], all[2]
}

func (p *party) rlock(ctx context.Context) error { return p.waits(ctx, "RLock", p.rw.RLock) }

func (p *party) tryRLock() error {
	return p.noted(func() error {
		return p.call("TryRLock", p.env.patience, func() error { return p.rw.TryRLock(p.env.Context()) })
	})
}

// share takes a share that nothing stands in the way of.
func (p *party) share() { p.shareAfter("nobody holds the lock alone, or waits for that") }

func (p *party) shareAfter(what string) {
	start := time.Now()
	if err := p.within(p.env.prompt, p.rlock); err != nil {
		p.env.doubtf("%s, but %s's RLock failed after %v: %v", what, p.who, time.Since(start), err)
	}
}

// startShare calls RLock in a goroutine. It returns when that should wait.
func (p *party) startShare(ctx context.Context) <-chan error {
	defer time.Sleep(p.env.settle())
	return p.begin(ctx, p.rlock)
}

// startLock is startShare for Lock.
func (p *party) startLock(ctx context.Context) <-chan error {
	defer time.Sleep(p.env.settle())
	return p.start(ctx)
}

// keepsOut ends the trial if b's call, which waits because p holds, returns.
func (p *party) keepsOut(b *party, op string, done <-chan error) {
	select {
	case err := <-done:
		if err == nil {
			p.overlapOf(op, b)
		}
		p.env.doubtf("%s's %s, before its ctx ended: %v; want it to wait", b.who, op, err)
	case <-time.After(p.env.settle()):
	}
}

// excludesShare ends the trial if b gets a share of what p holds alone.
func (p *party) excludesShare(b *party) {
	if b.within(p.env.settle(), b.rlock) == nil {
		p.overlapOf("RLock", b)
	}
	err := b.tryRLock()
	if err == nil {
		p.overlapOf("TryRLock", b)
	}
	if errors.Is(err, locker.ErrLost) {
		p.env.doubtf("%s's TryRLock: %v", b.who, err)
	}
	b.want("TryRLock of a lock that "+p.who+" holds alone", err, locker.ErrHeld)
}

// queued ends the trial in doubt if a call that waits its turn returns.
func (p *party) queued(done <-chan error, behind string) {
	select {
	case err := <-done:
		p.env.doubtf("%s waits behind %s, but its call returned %s", p.who, behind, says(err))
	case <-time.After(p.env.settle()):
	}
}

// someToken is that of the hold.
func (p *party) someToken(of string) uint64 {
	token := p.token()
	if token == 0 {
		p.prolong() // is it lost?
		p.env.failf("the token of %s is 0", of)
	}
	return token
}

// same ends the trial unless the token of p's hold is want.
func (p *party) same(want uint64, why string) {
	if token := p.token(); token != want {
		p.prolong() // is it lost?
		p.env.failf("%s's token is %d; want %d: %s", p.who, token, want, why)
	}
}

// mayDowngrade skips the scenario unless the Locker can.
func (p *party) mayDowngrade() {
	if _, ok := p.l.(downgrader); !ok {
		p.env.skip("the RWLocker has no Downgrade")
	}
}

func (p *party) downgrade() error {
	return p.call("Downgrade", p.env.patience+p.ttl, func() error { return p.l.(downgrader).Downgrade(p.env.Context()) })
}

// weaken downgrades what is held alone.
func (p *party) weaken() { p.downgraded(p.downgrade()) }

// downgraded ends the trial unless a Downgrade of what is held alone has succeeded.
func (p *party) downgraded(err error) {
	if errors.Is(err, locker.ErrUnsupported) {
		p.env.skip(fmt.Sprintf("the RWLocker does not downgrade: %v", err))
	}
	p.sound("Downgrade", err)
}

// beside has another reader take a share beside the reader of the scenario, if there is one. left
// ends the trial unless that share lasts, and ends it.
func (e *env) beside(name string) (left func(b *party)) {
	if e.reader == "" {
		return func(*party) {}
	}
	c := e.rwParty("C", name, e.long)
	c.share()
	return func(b *party) {
		c.excludes(b, e.settle())
		c.prolong()
		c.release()
	}
}
