package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/zookeeper"
)

func openZooKeeper(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		return sent.DialZooKeeper(network, addr, patience)
	}
	d, err := zookeeper.NewDriver(addrs, zookeeper.Tick(servers.Tick), zookeeper.Dialer(dial))
	if err != nil {
		return nil, err
	}
	c, err := locker.New(d, locker.WithTTL(ttl))
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return lockerClient(c, func() {}), nil
}
