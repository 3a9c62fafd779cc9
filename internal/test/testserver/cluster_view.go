package testserver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clusterOK returns nil when the server accepts keys as far as the cluster is concerned.
func (s *RedisServer) clusterOK() error {
	state, err := s.info("CLUSTER", "INFO")
	if err == nil && state["cluster_state"] != "ok" {
		err = errors.New("cluster_state is " + state["cluster_state"])
	}
	return err
}

// views returns what each node that runs says of all, if it is content with that.
func (c *RedisCluster) views() ([]clusterView, error) {
	var views []clusterView
	for _, s := range c.nodes {
		if !s.responsive() {
			continue
		}
		err := s.clusterOK()
		if err == nil {
			var view clusterView
			view, err = s.clusterView()
			views = append(views, view)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Addr(), err)
		}
	}
	return views, nil
}

// tookOver returns nil when the first nodes know that one of them serves a shard.
func (c *RedisCluster) tookOver(shard int) error {
	for _, s := range c.nodes[:shards] {
		view, err := s.clusterView()
		if err != nil {
			return err
		}
		if owner := view.owner(shard * slots / shards); owner != c.ids[shard] {
			return fmt.Errorf("%s reports to be %q", s.Addr(), owner)
		}
	}
	return nil
}

// connected returns nil when each node has a connection to each other.
func (c *RedisCluster) connected() error {
	for _, s := range c.nodes {
		view, err := s.clusterView()
		if err != nil {
			return err
		}
		for _, id := range c.ids {
			if node := view[id]; node.link != "connected" || strings.Contains(node.flags, "fail") {
				return fmt.Errorf("%s reports that %s is %q, %q", s.Addr(), c.node(id).Addr(), node.link, node.flags)
			}
		}
	}
	return nil
}

// agreed returns the primary of slot, of which all nodes that run must say the same.
func (c *RedisCluster) agreed(slot int) (*RedisServer, error) {
	views, err := c.views()
	if err != nil {
		return nil, err
	}
	var owners []string
	for _, view := range views {
		owners = append(owners, view.owner(slot))
	}
	if owners = slices.Compact(owners); len(owners) != 1 {
		return nil, fmt.Errorf("slot %d belongs to one of %q", slot, owners)
	}
	s := c.node(owners[0])
	switch {
	case s == nil:
		return nil, fmt.Errorf("slot %d belongs to %q, no node of ours", slot, owners[0])
	case !s.responsive():
		return nil, fmt.Errorf("slot %d belongs to %s, which does not run", slot, s.Addr())
	}
	return s, nil
}

// clusterView is what one node knows of all, by their ids.
type clusterView map[string]clusterNode

type clusterNode struct {
	flags   string // commas between them
	primary string // of a replica: its id
	link    string // connected, disconnected
	slots   [][2]int
}

func (v clusterView) owner(slot int) string {
	for id, node := range v {
		for _, r := range node.slots {
			if r[0] <= slot && slot <= r[1] {
				return id
			}
		}
	}
	return ""
}

// clusterView parses CLUSTER NODES: id address flags primary ping pong epoch link slots…
func (s *RedisServer) clusterView() (clusterView, error) {
	text, err := s.doText("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	view := make(clusterView)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES says %q", line)
		}
		node := clusterNode{flags: fields[2], primary: fields[3], link: fields[7]}
		for _, r := range fields[8:] {
			first, last, _ := strings.Cut(r, "-")
			from, err := strconv.Atoi(first)
			if err != nil {
				continue // a slot under way, "[slot->-id]"
			}
			to, err := strconv.Atoi(last)
			if err != nil {
				to = from
			}
			node.slots = append(node.slots, [2]int{from, to})
		}
		view[fields[0]] = node
	}
	return view, nil
}
