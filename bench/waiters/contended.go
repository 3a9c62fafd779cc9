package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/redisserver"
)

const (
	hold  = time.Millisecond
	think = 20 * time.Millisecond
)

func measureContended(
	ctx context.Context, servers redisserver.Servers, l contend.Library, round, waiters int, o options,
) (contend.Result, error) {
	return l.Measure(ctx, servers, contend.Cell{
		Name:  fmt.Sprintf("contended-%s-%d-%d", l.Name, waiters, round),
		Round: round, Waiters: waiters, Clients: o.clients,
		Hold: hold, Think: think, WarmUp: o.warmUp, Duration: o.duration,
	})
}
