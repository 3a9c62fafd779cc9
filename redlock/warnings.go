package redlock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-locker/locker/driver"
)

// Warnings implements [driver.Warner]. It asks all nodes that can tell, at once, and returns an error if none of them has answered.
func (d *Driver) Warnings(ctx context.Context) ([]string, error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.work.Done()
	var nodes []*node
	for _, n := range d.nodes {
		if _, ok := n.Node.(driver.Warner); ok {
			nodes = append(nodes, n)
		}
	}
	coming := query(ctx, d, nodes, func(ctx context.Context, n *node) ([]string, error) { return n.Node.(driver.Warner).Warnings(ctx) })
	warnings, errs := make([][]string, len(nodes)), make([]error, len(nodes))
	for range nodes {
		select {
		case a := <-coming:
			errs[a.i] = a.err
			for _, w := range a.value {
				warnings[a.i] = append(warnings[a.i], nodes[a.i].name+": "+w)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if len(nodes) > 0 && !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...)
	}
	return slices.Concat(warnings...), nil
}
