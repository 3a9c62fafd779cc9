package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
)

func (o *options) measureContended(ctx context.Context, s system, on *servers.Servers, r *Results, progress io.Writer) error {
	for round := range o.longRounds {
		for _, waiters := range o.waiters {
			for _, l := range s.locks().Turn(round) {
				c, err := l.Measure(ctx, on, contend.Cell{
					Name:  l.LockName("contended", waiters, round),
					Round: round, Waiters: waiters, Clients: o.clients,
					Hold: o.hold, WarmUp: o.warmUp, Duration: o.duration,
				})
				if err != nil {
					return err
				}
				fmt.Fprintf(progress, "round %d of %d: %d waiters, %s: %.0f acquisitions/s\n",
					round+1, o.longRounds, waiters, l.Name, c.Rate())
				r.Contended = append(r.Contended, c)
			}
		}
	}
	return nil
}
