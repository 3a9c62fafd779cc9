package redisscript

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
)

// Driver grants leases by the scripts. It implements driver.Driver but for Close, which is also
// about the adapter's client.
type Driver struct {
	runner Runner
	server serverClock
	marks  marks
	hub    *hub
	sender *sender
	expiry atomic.Value // the latest, an int64

	sentinels []string // see Watch
	master    func(ctx context.Context, addr string) (map[string]string, error)
}

// NewDriver makes a Driver that runs its scripts through r.
func NewDriver(r Runner) *Driver {
	d := &Driver{runner: r, marks: newMarks(r.Sharded())}
	d.sender = newSender(r)
	d.hub = newHub(r, d.decline)
	return d
}

// Close ends the subscriptions, has client close what the adapter has to, and returns when no
// goroutine of the Driver is left.
func (d *Driver) Close(client func() error) error {
	d.hub.close()
	err := client() // ends requests that hang
	d.sender.close()
	return err
}

// Keep is KEEP of the scripts. They are sent the sum of it and a TTL, so that the server need not
// add it and print it.
const Keep = time.Minute

// expiry returns after how many milliseconds the key of a lock of that TTL expires.
func expiry(ttl time.Duration) int64 { return ttl.Milliseconds() + Keep.Milliseconds() }

// expiryArg returns expiry as an argument, which most often is the one of the request before.
func (d *Driver) expiryArg(ttl time.Duration) any {
	ms := expiry(ttl)
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
