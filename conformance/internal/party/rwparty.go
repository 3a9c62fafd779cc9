package party

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

// Downgrader is an RWLocker that has Downgrade.
type Downgrader interface {
	Downgrade(ctx context.Context) error
}

// RWParty makes a party that can also take shares.
func (e *Env) RWParty(who, name string, ttl time.Duration) *Party {
	l := e.rwLocker(name, ttl)
	p := e.Using(l, who, name, ttl)
	p.RW = l
	return p
}

// RWParties makes n processes, called A, B and so on, that contend for one name.
func (e *Env) RWParties(n int) []*Party {
	name := e.Name()
	all := make([]*Party, n)
	for i := range all {
		all[i] = e.RWParty(string(rune('A'+i)), name, e.Long)
	}
	return all
}

// RWTrio is Trio of parties that can also take shares.
func (e *Env) RWTrio(ttlOfA time.Duration) (a, b, c *Party) {
	name := e.Name()
	return e.RWParty("A", name, ttlOfA), e.RWParty("B", name, e.Long), e.RWParty("C", name, e.Long)
}

// RLock calls the RWLocker's RLock.
func (p *Party) RLock(ctx context.Context) error { return p.waits(ctx, "RLock", p.RW.RLock) }

// TryRLock calls the RWLocker's TryRLock.
func (p *Party) TryRLock() error {
	return p.Noted(func() error {
		return p.Call("TryRLock", p.Env.Patience, func() error { return p.RW.TryRLock(p.Env.Context()) })
	})
}

// Share takes a share that nobody blocks.
func (p *Party) Share() { p.ShareAfter("nobody holds the lock alone, or waits for that") }

// ShareAfter is Share; what says why nobody blocks the share.
func (p *Party) ShareAfter(what string) {
	start := time.Now()
	if err := p.within(p.Env.Prompt, p.RLock); err != nil {
		p.Env.Doubtf("%s, but %s's RLock failed after %v: %v", what, p.Who, time.Since(start), err)
	}
}

// StartShare calls RLock in a goroutine, and returns when it should be waiting.
func (p *Party) StartShare(ctx context.Context) <-chan error {
	defer time.Sleep(p.Env.Settle())
	return p.begin(ctx, p.RLock)
}

// StartLock calls Lock in a goroutine, and returns when it should be waiting.
func (p *Party) StartLock(ctx context.Context) <-chan error {
	defer time.Sleep(p.Env.Settle())
	return p.Start(ctx)
}

// KeepsOut ends the trial if b's call, which p's hold blocks, returns.
func (p *Party) KeepsOut(b *Party, op string, done <-chan error) {
	p.keepsWaiting(b, op, done, p.Env.Settle())
}

// ExcludesShare ends the trial if b gets a share while p has an exclusive hold.
func (p *Party) ExcludesShare(b *Party) {
	if b.within(p.Env.Settle(), b.RLock) == nil {
		p.OverlapOf("RLock", b)
	}
	err := b.TryRLock()
	if err == nil {
		p.OverlapOf("TryRLock", b)
	}
	if errors.Is(err, locker.ErrLost) {
		p.Env.Doubtf("%s's TryRLock: %v", b.Who, err)
	}
	b.Want("TryRLock of a lock that "+p.Who+" holds alone", err, locker.ErrHeld)
}

// Queued ends the trial in doubt if a queued call returns.
func (p *Party) Queued(done <-chan error, behind string) {
	select {
	case err := <-done:
		p.Env.Doubtf("%s waits behind %s, but its call returned %s", p.Who, behind, Says(err))
	case <-time.After(p.Env.Settle()):
	}
}

// SomeToken returns the token of the hold, and ends the trial if it is 0.
func (p *Party) SomeToken(of string) uint64 {
	token := p.Token()
	if token == 0 {
		p.Prolong() // is it lost?
		p.Env.Failf("the token of %s is 0", of)
	}
	return token
}

// Same ends the trial unless the token of p's hold is want.
func (p *Party) Same(want uint64, why string) {
	if token := p.Token(); token != want {
		p.Prolong() // is it lost?
		p.Env.Failf("%s's token is %d; want %d: %s", p.Who, token, want, why)
	}
}

// MayDowngrade skips the scenario unless the Locker has Downgrade.
func (p *Party) MayDowngrade() {
	if _, ok := p.Locker.(Downgrader); !ok {
		p.Env.Skip("the RWLocker has no Downgrade")
	}
}

// Downgrade calls the Downgrade of a Locker that has it.
func (p *Party) Downgrade() error {
	return p.Call("Downgrade", p.Env.Patience+p.TTL, func() error { return p.Locker.(Downgrader).Downgrade(p.Env.Context()) })
}

// Weaken downgrades an exclusive hold, and ends the trial if that fails.
func (p *Party) Weaken() { p.Downgraded(p.Downgrade()) }

// Downgraded ends the trial unless err, of a Downgrade of an exclusive hold, is nil.
func (p *Party) Downgraded(err error) {
	if errors.Is(err, locker.ErrUnsupported) {
		p.Env.Skip(fmt.Sprintf("the RWLocker does not downgrade: %v", err))
	}
	p.Sound("Downgrade", err)
}

// Beside has another reader take a share beside the scenario's reader, if there is one. left ends
// the trial unless that share still excludes b, and releases it.
func (e *Env) Beside(name string) (left func(b *Party)) {
	if e.Reader == "" {
		return func(*Party) {}
	}
	c := e.RWParty("C", name, e.Long)
	c.Share()
	return func(b *Party) {
		c.Excludes(b, e.Settle())
		c.Prolong().Release()
	}
}
