package redlock

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-locker/locker"
)

func init() {
	locker.Register("redlock", open)
}

// open makes a node of each host, by the scheme that the parameter driver names. Every other parameter
// that is not redlock's own goes to each of them.
func open(ctx context.Context, u *locker.URL) (locker.Driver, error) {
	var opts []DriverOption
	if value, ok := u.Take("node_timeout"); ok {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("parameter node_timeout=%q is not a duration above 0, such as 50ms", value)
		}
		opts = append(opts, NodeTimeout(d))
	}
	scheme, ok := u.Take("driver")
	if !ok {
		scheme = "redis"
	}
	if scheme == u.Scheme {
		return nil, fmt.Errorf("parameter driver=%s: a node cannot be a quorum of nodes", scheme)
	}
	var nodes []locker.Driver
	left := u.Query
	fail := func(err error) (locker.Driver, error) {
		for _, n := range nodes {
			_ = n.Close()
		}
		return nil, err
	}
	for i, host := range u.Hosts {
		own := &locker.URL{Scheme: scheme, User: u.User, Hosts: []string{host}, Path: u.Path, Query: maps.Clone(u.Query)}
		n, err := locker.OpenDriver(ctx, own)
		if err != nil {
			return fail(fmt.Errorf("node %d of %d, by driver=%s: %w", i+1, len(u.Hosts), scheme, err))
		}
		nodes = append(nodes, n)
		left = own.Query
	}
	d, err := NewDriver(nodes, opts...)
	if err != nil {
		return fail(err)
	}
	u.Query = left
	return d, nil
}
