package redisscript

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// What a node of Redlock does beyond any other server.

// Candidate implements quorum.Node.
func (d *Driver) Candidate(req driver.Request, place uint64, woken func(claimed bool)) quorum.Candidate {
	c := &claim{driver: d, asks: script.Propose, metadata: req.Metadata, redlock: true}
	c.TTL = req.TTL
	if woken == nil {
		return c.named(req.Name, "", "")
	}
	c.Place, c.Told = place, woken
	return c.named(req.Name, d.hub.Prefix(), strconv.FormatUint(place, 10)+"/")
}

// Propose implements quorum.Candidate.
func (c *claim) Propose(ctx context.Context, token uint64) (earlier bool, err error) {
	if token == 0 || token >= 1<<script.TokenBits {
		return false, fmt.Errorf("%w: proposed token %d: Redis takes 1 to 2^53-1", driver.ErrUnsupported, token)
	}
	a, err := c.ask(ctx, int64(token))
	if err != nil || a.Status == script.Granted {
		return false, err
	}
	return a.Earlier, a.HeldBy()
}

// Known implements quorum.Candidate.
func (c *claim) Known() bool { return c.there }

// Raise implements quorum.Candidate.
func (c *claim) Raise(ctx context.Context, token uint64) error {
	reply := c.send(ctx, script.Raise, c.Keys[:1], c.argOwner, token, c.mark.Tag)
	if reply.Err == nil && reply.Value == any(int64(-1)) {
		return fmt.Errorf("%w: token %d is more than %v ahead of the server's clock, or ahead and its mark cannot be written", driver.ErrUnsupported, token, script.MostAhead*time.Microsecond)
	}
	err := reply.LostUnlessOne()
	if err == nil {
		c.hold.token.Store(token)
	}
	return err
}

// Identify implements quorum.Node: a server makes its run_id anew when it starts.
func (d *Driver) Identify(ctx context.Context) (id string, err error) {
	r := d.sender.Request(script.Info, nil, "server")
	r.Counted = true
	server, err := d.info(ctx, r)
	return field(server, "run_id"), err
}

// ServerTime implements quorum.Node.
func (d *Driver) ServerTime() (now time.Time, known bool) { return d.clock.Now() }
