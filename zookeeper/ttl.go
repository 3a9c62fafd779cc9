package zookeeper

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-locker/locker/driver"
)

// CheckTTL refuses what no ZooKeeper honours, or not the application's session. What the servers' own limits rule out shows when a
// lock is taken.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	granted, least := d.knownTTL(), ticksPerTTL*d.tick
	switch {
	case d.conn != nil && granted != 0 && ttl != granted:
		return fmt.Errorf("%w: TTL %v: the connection's session has a time-out of %v: use that, or open the locks by URL",
			driver.ErrUnsupported, ttl, granted)
	case ttl < least:
		return fmt.Errorf("%w: TTL %v: with a tick of %v use %v or more, or %s", driver.ErrUnsupported, ttl, d.tick, least, sayTick)
	case ttl%time.Millisecond != 0:
		return fmt.Errorf("%w: TTL %v: ZooKeeper counts in whole milliseconds: use %v", driver.ErrUnsupported, ttl, ttl.Round(time.Millisecond))
	case ttl > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("%w: TTL %v: ZooKeeper takes at most %v", driver.ErrUnsupported, ttl, math.MaxInt32*time.Millisecond)
	default:
		return nil
	}
}

// DefaultTTL returns the time-out that the servers grant a session that asks for 30s, or the application's session has; 30s if
// nobody answers within the dial time-out.
func (d *Driver) DefaultTTL() time.Duration {
	if granted := d.knownTTL(); granted != 0 {
		return granted // and CheckTTL says what is wrong with it
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.dialTimeout)
	defer cancel()
	if d.opening != nil {
		forget := context.AfterFunc(d.opening, cancel)
		defer forget()
	}
	if s, err := d.sessionFor(sessionTimeout, true); err == nil && s.Wait(ctx) == nil {
		return s.TTL
	}
	return cmp.Or(d.knownTTL(), sessionTimeout)
}

// knownTTL returns the time-out of the application's session, or 0.
func (d *Driver) knownTTL() time.Duration { return time.Duration(d.granted.Load()) }

// sayTick is how to have a shorter TTL.
const sayTick = "say with the parameter or option tick what tickTime the servers have"
