package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/quorumserver"
	"github.com/go-locker/locker/bench/internal/wire"
)

// Contended is what came of one name that everybody wants.
type Contended struct {
	Library string `json:"library"`
	Round   int    `json:"round"`
	Waiters int    `json:"waiters"`
	Clients int    `json:"clients"`
	Load    Load   `json:"load"`
	contend.Outcome
}

// rate is in acquisitions a second.
func (c *Contended) rate() float64 { return float64(c.Acquisitions) / c.Load.Seconds }

func (o options) measureContended(
	ctx context.Context, s system, servers *quorumserver.Servers, r *Results, progress io.Writer,
) error {
	for round := range o.longRounds {
		for _, waiters := range o.waiters {
			for _, l := range s.locks().Turn(round) {
				c, err := measureCell(ctx, l, servers.Addrs, contend.Cell{
					Name:  lockName("contended", l.Name, strconv.Itoa(waiters), strconv.Itoa(round)),
					Round: round, Waiters: waiters, Clients: o.clients,
					Hold: o.hold, WarmUp: o.warmUp, Duration: o.duration,
				})
				if err != nil {
					return err
				}
				fmt.Fprintf(progress, "round %d of %d: %d waiters, %s: %.0f acquisitions/s\n",
					round+1, o.longRounds, waiters, l.Name, c.rate())
				r.Contended = append(r.Contended, c)
			}
		}
	}
	return nil
}

func measureCell(ctx context.Context, l contend.Library, addrs []string, cell contend.Cell) (Contended, error) {
	c := Contended{Library: l.Name, Round: cell.Round, Waiters: cell.Waiters, Clients: min(cell.Waiters, cell.Clients)}
	sent := wire.NewTally()
	clients, closeAll, err := l.OpenClients(c.Clients, addrs, sent)
	if err != nil {
		return c, err
	}
	defer closeAll()
	var before, after look
	c.Outcome, err = cell.Run(ctx, clients, func(context.Context) error {
		before, after = after, lookAt(sent)
		return nil
	})
	c.Load = after.since(before)
	return c, err
}
