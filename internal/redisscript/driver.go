// Package redisscript is the lock protocol on one Redis server, whatever the client library: claims
// to locks, and what an operator asks.
//
// Below it are three packages, none of which knows a claim: script (what one script does, and one
// round trip), send (who makes a request, and when) and wait (who is woken).
package redisscript

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/redisscript/wait"
)

// Runner is what the protocol needs of a client library.
type Runner interface {
	send.Runner
	wait.Runner

	// Scans returns a Scan of each server that has locks.
	Scans(ctx context.Context) ([]Scan, error)
}

// Driver grants leases by the scripts. It implements driver.Driver but for Close, which is also
// about the adapter's client.
type Driver struct {
	runner Runner
	clock  script.Clock // the server's
	marks  *script.Marks
	hub    *wait.Hub
	sender *send.Sender
	expiry atomic.Value // the latest, an int64

	sentinels []string // see Watch
	master    func(ctx context.Context, addr string) (map[string]string, error)
}

// NewDriver makes a Driver that runs its scripts through r.
func NewDriver(r Runner) *Driver {
	d := &Driver{runner: r, marks: script.NewMarks(r.Sharded()), sender: send.New(r)}
	d.hub = wait.NewHub(r, d.decline)
	return d
}

// Close ends the subscriptions, has client close what the adapter has to, and returns when no
// goroutine of the Driver is left.
func (d *Driver) Close(client func() error) error {
	d.hub.Close()
	err := client() // ends requests that hang
	d.sender.Close()
	return err
}

// decline hands over what is claimed for an owner that waits no more. If that fails the claim
// expires.
func (d *Driver) decline(ctx context.Context, keys []any, owner string) {
	_, _ = d.sender.Call(ctx, script.Release, keys, script.ClaimMark+owner, 1, 0)
}

// expiryArg returns script.Expiry as an argument, which most often is the one of the request before.
func (d *Driver) expiryArg(ttl time.Duration) any {
	ms := script.Expiry(ttl)
	if latest := d.expiry.Load(); latest != nil && latest.(int64) == ms {
		return latest
	}
	d.expiry.Store(ms)
	return ms
}

// CheckTTL refuses what Redis cannot express: parts of a millisecond.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	if ttl%time.Millisecond != 0 {
		return fmt.Errorf("%w: TTL %v: Redis takes whole milliseconds", driver.ErrUnsupported, ttl)
	}
	return nil
}

// DefaultTTL leaves the default to the core.
func (d *Driver) DefaultTTL() time.Duration { return 0 }

// Guarantees returns what a Redis server promises.
func (d *Driver) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive:      {Level: driver.LevelConditional, Condition: "while the server's clock is sane, and the server evicts no keys"},
		driver.Failover:       {Level: driver.LevelNo, Condition: "replication is asynchronous, and a failover can lose the lock"},
		driver.Fencing:        {Level: driver.LevelYes},
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while clocks are sane"},
		driver.Ordered:        {Level: driver.LevelConditional, Condition: "while the waiters' subscriptions do not break, and no replica takes over"},
		driver.Woken:          {Level: driver.LevelYes},
	}
}
