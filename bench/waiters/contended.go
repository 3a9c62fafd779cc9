package main

import (
	"context"
	"slices"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
)

const (
	hold  = time.Millisecond
	think = 20 * time.Millisecond
)

// cells are those of a round: each number of waiters, over each number of clients that it can be spread over.
func (o *options) cells(round int) []contend.Cell {
	var all []contend.Cell
	for _, waiters := range o.waiters {
		for _, clients := range o.clients {
			cell := contend.Cell{
				Round: round, Waiters: waiters, Clients: min(clients, waiters),
				Hold: hold, Think: think, WarmUp: o.warmUp, Duration: o.duration,
			}
			if !slices.Contains(all, cell) {
				all = append(all, cell)
			}
		}
	}
	return all
}

func measureContended(
	ctx context.Context, on *servers.Servers, l contend.Library, cell contend.Cell,
) (contend.Result, error) {
	cell.Name = l.LockName("contended", cell.Waiters, cell.Clients, cell.Round)
	return l.Measure(ctx, on, cell)
}
