package redisscript

import (
	"context"
	"fmt"
	"regexp"
)

var maxmemory = regexp.MustCompile(`(?m)^maxmemory(_policy)?:(\S+)`)

// Warnings implements driver.Warner: a server that evicts keys evicts locks that are held. Of a Cluster it asks one node.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	reply, err := d.sender.call(ctx, memory, nil, "memory")
	if err != nil {
		return nil, err
	}
	info, _ := textOf(reply)
	limit, policy := "0", "noeviction"
	for _, found := range maxmemory.FindAllStringSubmatch(info, -1) {
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
