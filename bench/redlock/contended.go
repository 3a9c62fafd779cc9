package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
)

func measureContended(ctx context.Context, on *servers.Servers, o *options, progress io.Writer) ([]contend.Result, error) {
	var all []contend.Result
	for round := range o.longRounds {
		for _, l := range o.without(floorName, ctxName).Turn(round) {
			c, err := l.Measure(ctx, on, contend.Cell{
				Name:  l.LockName("contended", round),
				Round: round, Waiters: o.contenders, Clients: o.clients,
				Hold: o.hold, Think: o.think, WarmUp: o.warmUp, Duration: o.duration,
			})
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "round %d of %d: %d contenders, %s: %.0f acquisitions/s\n",
				round+1, o.longRounds, o.contenders, l.Name, c.Rate())
			all = append(all, c)
		}
	}
	return all, nil
}

// without leaves some out: what is no lock, and what differs only while nodes are unreachable.
func (o *options) without(names ...string) contend.Libraries {
	return slices.DeleteFunc(slices.Clone(o.Libraries), func(l contend.Library) bool {
		return slices.Contains(names, l.Name)
	})
}
