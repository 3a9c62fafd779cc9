package main

import (
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/servers"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/zookeeper"
)

func openZooKeeper(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	conn, events, err := connectZooKeeper(addrs, sent, ttl)
	if err != nil {
		return nil, err
	}
	d, err := zookeeper.NewDriver(conn, events, zookeeper.Tick(servers.Tick))
	if err != nil {
		conn.Close()
		return nil, err
	}
	c, err := locker.New(d, locker.WithTTL(ttl))
	if err != nil {
		err = errors.Join(err, d.Close())
		conn.Close()
		return nil, err
	}
	return lockerClient(c, conn.Close), nil
}
