package redisscript

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/go-locker/locker/internal/clock"
)

var maxmemory = regexp.MustCompile(`(?m)^maxmemory(_policy)?:(\S+)`)

// Warnings implements driver.Warner: a server that evicts keys evicts locks that are held. Of a
// Cluster it asks one node.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	memory, err := d.info(ctx, d.sender.request(info, nil, "memory"))
	if err != nil {
		return nil, err
	}
	limit, policy := "0", "noeviction"
	for _, found := range maxmemory.FindAllStringSubmatch(memory, -1) {
		if found[1] == "" {
			limit = found[2]
		} else {
			policy = found[2]
		}
	}
	if limit == "0" || policy == "noeviction" {
		return nil, nil
	}
	return []string{fmt.Sprintf("maxmemory is %s bytes and maxmemory-policy is %s: "+
		"at that limit the server may evict locks that are held, and others get them; set the policy to noeviction", limit, policy)}, nil
}

// info makes a request of the script info, and takes in the server's clock. It returns nothing
// where the user has no right to INFO.
func (d *Driver) info(ctx context.Context, r *request) (section string, err error) {
	sent := clock.Now()
	reply, _ := d.sender.send(ctx, longest, r)
	if reply.Err != nil {
		return "", reply.Err
	}
	all, _ := reply.Value.([]any)
	record := recordOf(infoReply, all)
	now, err := strconv.ParseInt(record.text("clock"), 10, 64)
	section = record.text("text")
	if record.bad || err != nil {
		return "", fmt.Errorf("unexpected reply to the info script: %v", reply.Value)
	}
	d.server.onReply(now, sent)
	return section, nil
}
