// Package cutoff makes Clients of the memory backend that a test can cut off from it, as an unreachable server does.
package cutoff

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// ErrUnreachable is the error of every request of a Client that is cut off.
var ErrUnreachable = errors.New("connection refused")

// TTL is that of the Clients, and Drift is what the allowance for clocks takes off it.
const (
	TTL   = 10 * time.Second
	Drift = 102 * time.Millisecond
)

// Client has the names of the test that made it.
type Client struct {
	*locker.Client
	link *link
}

// New makes a Client, which is closed when t ends.
func New(t testing.TB, opts ...locker.Option) *Client {
	t.Helper()
	l := &link{Driver: memory.NewDriver(memory.InSpace(t.Name()))}
	c, err := locker.New(l, append([]locker.Option{locker.WithTTL(TTL)}, opts...)...)
	if err != nil {
		t.Fatalf("cutoff: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &Client{c, l}
}

// Cut has every request fail from now on, and with false no longer. What waits in a queue stays there.
func (c *Client) Cut(cut bool) { c.link.cut.Store(cut) }

// Revoke ends the latest hold at the backend, which tells the Client, as an operator does who removes a lock.
func (c *Client) Revoke(t testing.TB) {
	t.Helper()
	l := c.link.latest.Load()
	if err := l.Claim.Release(t.Context()); err != nil {
		t.Fatalf("cutoff: revoke: %v", err)
	}
	l.lost()
}

// link is a Driver that can be cut off.
type link struct {
	*memory.Driver
	cut    atomic.Bool
	latest atomic.Pointer[lease]
}

var _ interface {
	driver.Driver
	driver.Inspector
} = (*link)(nil)

func (l *link) err() error {
	if l.cut.Load() {
		return ErrUnreachable
	}
	return nil
}

// Claim has the requests of a claim go this way, too.
func (l *link) Claim(req driver.Request) driver.Claim {
	return &lease{Claim: l.Driver.Claim(req), link: l}
}

func (l *link) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := l.err(); err != nil {
		return driver.State{}, err
	}
	return l.Driver.Inspect(ctx, name)
}

type lease struct {
	driver.Claim
	link *link
	lost func()
}

func (l *lease) Ask(ctx context.Context) (time.Duration, error) {
	if err := l.link.err(); err != nil {
		return 0, err
	}
	return l.Claim.Ask(ctx)
}

func (l *lease) NotifyLost(f func()) {
	l.lost = f
	l.link.latest.Store(l)
}

func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.link.err(); err != nil {
		return err
	}
	return l.Claim.Extend(ctx, ttl)
}

func (l *lease) Release(ctx context.Context) error {
	if err := l.link.err(); err != nil {
		return err
	}
	return l.Claim.Release(ctx)
}
