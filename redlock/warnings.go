package redlock

import (
	"cmp"
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
	said := make(chan nodeWarnings, 2*len(d.nodes)) // a node may be missed, and answer later
	r := d.round(ctx, surveyTimeout(ctx, cmp.Or(d.timeout, longestTimeout)))
	asked := 0
	for i, n := range d.nodes {
		if w, ok := n.Proposer.(driver.Warner); ok {
			asked++
			r.call(n, &warningsMessage{warner: w, said: said, i: i})
		}
	}
	r.sent()
	all, errs := make([][]string, len(d.nodes)), make([]error, len(d.nodes))
	answered := 0
	for heard := make([]bool, len(d.nodes)); asked > 0; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case s := <-said:
			if heard[s.i] {
				continue
			}
			heard[s.i] = true
			asked--
			if errs[s.i] = s.err; s.err == nil {
				answered++
			}
			for _, w := range s.warnings {
				all[s.i] = append(all[s.i], d.nodes[s.i].name+": "+w)
			}
		}
	}
	if answered > 0 {
		return slices.Concat(all...), nil
	}
	return nil, errors.Join(errs...)
}

// nodeWarnings is what node i says.
type nodeWarnings struct {
	i        int
	warnings []string
	err      error
}

// warningsMessage asks node i for its warnings.
type warningsMessage struct {
	warner   driver.Warner
	said     chan<- nodeWarnings
	i        int
	warnings []string
}

func (m *warningsMessage) send(ctx context.Context) (err error) {
	m.warnings, err = m.warner.Warnings(ctx)
	return err
}

func (m *warningsMessage) answered(err error) { m.said <- nodeWarnings{m.i, m.warnings, err} }

func (m *warningsMessage) missed(err error) { m.said <- nodeWarnings{i: m.i, err: err} }
