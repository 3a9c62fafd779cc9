package redlock

import (
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
)

// NodeTimeout sets how long one node may take to answer one request. The default is TTL/10, and at
// most 500 ms. It is far below the TTL, because an attempt lasts for one NodeTimeout if a majority
// hangs.
//
// An attempt takes up to two rounds of requests, one to take the lock and, where the nodes' tokens
// differ, one to raise them. Two rounds and the allowance for drift together must last less than
// half of the TTL: 2 × NodeTimeout + TTL/100 + 2 ms < TTL/2. And NodeTimeout must not be more than
// TTL/7, because a renewal is sent again after TTL/6. A Client or Mutex whose TTL is too short for
// that is refused with an error that has the numbers, and matches [driver.ErrUnsupported]; with the
// default time-out, this is a TTL below 7 ms. A d of 0 or less is an error of [NewDriver].
func NodeTimeout(d time.Duration) DriverOption {
	return func(driver *backend) error {
		if d <= 0 {
			return fmt.Errorf("node time-out %v: must be above 0", d)
		}
		driver.timeout = d
		return nil
	}
}

const (
	timeoutsPerTTL = 10                     // the default of NodeTimeout
	longestTimeout = 500 * time.Millisecond // and the most that it is
	shortestTTL    = "7ms"                  // with the default: 0.2 TTL + 0.01 TTL + 2 ms < 0.5 TTL

	rounds       = 2 // requests that an attempt makes one after the other: to take the lock, and to raise the token
	renewalShare = 7 // of the TTL: the core gives a renewal a sixth, in which what the nodes say has to be counted, too
)

// nodeTimeout returns how long a node has for each request about a lock of that TTL.
func (d *backend) nodeTimeout(ttl time.Duration) time.Duration {
	if d.timeout > 0 {
		return d.timeout
	}
	return min(ttl/timeoutsPerTTL, longestTimeout)
}

// CheckTTL refuses a TTL that a node refuses, and one that is too short for the node time-out: an
// attempt could use up half of it, or a renewal could come too late although the nodes answer in
// time. See [NodeTimeout].
func (d *backend) CheckTTL(ttl time.Duration) error {
	for _, n := range d.nodes {
		if c, ok := n.Node.(driver.TTLChecker); ok {
			if err := c.CheckTTL(ttl); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
	}
	timeout, drift := d.nodeTimeout(ttl), ttl/100+2*time.Millisecond
	left := ttl - rounds*timeout - drift
	if left > ttl/2 && timeout <= ttl/renewalShare {
		return nil
	}
	advice := "use a TTL of at least " + shortestTTL
	if set := d.timeout; set > 0 {
		// 2 × timeout + TTL/100 + 2 ms < TTL/2, hence TTL > (2 × timeout + 2 ms) / 0.49.
		longer := max((rounds*set+2*time.Millisecond)*100/49, renewalShare*set)
		advice = fmt.Sprintf("use a TTL of at least %v", (longer + time.Millisecond).Round(time.Millisecond))
		if shorter := min((ttl*49/100-2*time.Millisecond)/rounds, ttl/renewalShare); shorter > time.Millisecond {
			advice += fmt.Sprintf(", or a node time-out below %v", shorter.Round(time.Microsecond))
		}
	}
	return fmt.Errorf("%w: TTL %v with a node time-out of %v: an attempt may take %d × %v, and drift %v, "+
		"which leaves %v to the holder, and must leave more than half; a renewal leaves a node %v: %s",
		driver.ErrUnsupported, ttl, timeout, rounds, timeout, drift, left, ttl/renewalShare, advice)
}

// DefaultTTL leaves the default to the core.
func (d *backend) DefaultTTL() time.Duration { return 0 }
