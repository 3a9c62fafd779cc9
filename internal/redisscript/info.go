package redisscript

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// Warnings implements driver.Warner: a server that evicts keys evicts locks that are held, and one
// that keeps no file forgets them when it restarts. Of a Cluster it asks one node.
func (d *Driver) Warnings(ctx context.Context) (warnings []string, err error) {
	memory, err1 := d.info(ctx, d.sender.Request(script.Info, nil, "memory"))
	persistence, err2 := d.info(ctx, d.sender.Request(script.Info, nil, "persistence"))
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	limit, policy := cmp.Or(field(memory, "maxmemory"), "0"), cmp.Or(field(memory, "maxmemory_policy"), "noeviction")
	if limit != "0" && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("maxmemory is %s bytes and maxmemory-policy is %s: "+
			"at that limit the server may evict locks that are held, and others get them; set the policy to noeviction", limit, policy))
	}
	if field(persistence, "aof_enabled") == "0" {
		warnings = append(warnings, "appendonly is no: a restart of the server forgets locks that are held, and others get them; set it to yes")
	}
	return append(warnings, d.sentinelWarnings(ctx)...), nil
}

// Watch has the Warnings of d tell how long the sentinels at addrs wait before a failover. master
// is SENTINEL MASTER, of one of them.
func Watch(d *Driver, addrs []string, master func(ctx context.Context, addr string) (map[string]string, error)) {
	d.sentinels, d.master = addrs, master
}

// sentinelWarnings warns of a failover that takes longer than holds with the default TTL last: an
// outage of up to two fifths of the TTL ends no hold. A sentinel hides its settings from a user
// without the right to them.
func (d *Driver) sentinelWarnings(ctx context.Context) []string {
	const outlasted = 30_000 * 2 / 5
	for _, addr := range d.sentinels {
		var known map[string]string
		err := d.sender.Aside(ctx, func(ctx context.Context) (err error) { known, err = d.master(ctx, addr); return err })
		if err != nil {
			continue
		}
		ms, _ := strconv.Atoi(known["down-after-milliseconds"])
		if ms <= outlasted {
			return nil
		}
		return []string{fmt.Sprintf("down-after-milliseconds of the sentinels is %d: a failover takes longer, and ends holds whose TTL is less than 2.5 times as long; set it to 5000", ms)}
	}
	return nil
}

// field returns what a section of INFO says of name; empty: nothing.
func field(section, name string) string {
	_, rest, _ := strings.Cut("\n"+section, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// info makes a request of the script info, and takes in the server's clock. It returns nothing
// where the user has no right to INFO.
func (d *Driver) info(ctx context.Context, r *send.Request) (section string, err error) {
	sent := clock.Now()
	reply, _ := d.sender.Send(ctx, send.Longest, r)
	if reply.Err != nil {
		return "", reply.Err
	}
	now, section, err := script.ParseInfo(reply.Value)
	if err != nil {
		return "", err
	}
	d.clock.OnReply(now, sent)
	return section, nil
}
