package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/quorum"
)

func init() {
	driver.Register("redlock", open)
}

// open makes a node of each host, by the scheme that the parameter driver names. Every other
// parameter that is not redlock's own goes to each of them.
func open(ctx context.Context, u *driver.URL) (_ driver.Driver, err error) {
	var timeout time.Duration
	if err := adapter.Duration(u, "node_timeout", &timeout); err != nil {
		return nil, err
	}
	scheme, ok := u.Take("driver")
	if !ok {
		scheme = "redis"
	}
	if scheme == u.Scheme {
		return nil, fmt.Errorf("parameter driver=%s: a node cannot be a quorum of nodes", scheme)
	}
	var nodes []driver.Driver
	defer func() {
		if err != nil {
			for _, n := range nodes {
				_ = n.Close()
			}
		}
	}()
	left := u.Query
	for i, host := range u.Hosts {
		own := *u
		own.Scheme, own.Hosts, own.Query = scheme, []string{host}, maps.Clone(u.Query)
		n, err := driver.Open(ctx, &own)
		if err == nil {
			nodes = append(nodes, n)
			if p, ok := n.(quorum.Node); ok && p.Address() == "" {
				// It is found through others: all sentinels, and all nodes of a Cluster, lead to
				// the same servers.
				err = errors.New("it is not one server of a known address, as a node has to be: master_name and cluster are not for redlock")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("node %d of %d, by driver=%s: %w", i+1, len(u.Hosts), scheme, err)
		}
		left = own.Query
	}
	made, err := NewDriver(nodes)
	if err != nil {
		return nil, err
	}
	d := made.(*backend)
	d.timeout, u.Query = timeout, left
	return d, nil
}
