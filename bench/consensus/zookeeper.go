package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
)

const zooKeeperModule = "github.com/go-zookeeper/zk"

var zooKeeperLibraries = contend.Libraries{
	{Name: "zookeeper locker", Module: "github.com/go-locker/locker", Settings: "TTL and session 1m; the option Tick is set to the servers' tickTime", TTL: usualTTL, Open: openZooKeeper},
	{Name: "zookeeper zk.Lock", Module: zooKeeperModule, Settings: "NewLock, session 1m", TTL: usualTTL, Open: openZKLock},
	{
		Name: "zookeeper bare", Module: zooKeeperModule, TTL: usualTTL, Open: openBareZooKeeper(true),
		Settings: "no lock: an ephemeral sequential node is created, while the children are listed; then it is deleted",
	},
	{
		Name: "zookeeper bare serial", Module: zooKeeperModule, TTL: usualTTL, Open: openBareZooKeeper(false),
		Settings: "the same, but the children are listed after the node was created",
	},
}

// patience is how long a connection may take.
const patience = 10 * time.Second

var anybody = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// connectZooKeeper returns when there is a session.
func connectZooKeeper(addrs []string, sent *wire.Tally, ttl time.Duration) (*zk.Conn, error) {
	connected := make(chan struct{}, 1)
	conn, _, err := zk.Connect(addrs, ttl, zk.WithDialer(sent.DialZooKeeper), zk.WithLogger(silent{}),
		zk.WithEventCallback(func(e zk.Event) {
			if e.State != zk.StateHasSession {
				return
			}
			select {
			case connected <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return nil, err
	}
	select {
	case <-connected:
		return conn, nil
	case <-time.After(patience):
		conn.Close()
		return nil, fmt.Errorf("no session at %v after %v", addrs, patience)
	}
}

// openZKLock ignores contexts, for which the recipe has no place.
func openZKLock(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	conn, err := connectZooKeeper(addrs, sent, ttl)
	if err != nil {
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			l := zk.NewLock(conn, "/"+name, anybody)
			unlock := func(context.Context) error { return l.Unlock() }
			return func(context.Context) (contend.UnlockFunc, error) { return unlock, l.Lock() }
		},
		Close: conn.Close,
	}, nil
}

func openBareZooKeeper(pipelined bool) func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
	return func(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
		conn, err := connectZooKeeper(addrs, sent, ttl)
		if err != nil {
			return nil, err
		}
		return &contend.Client{
			Waiter: func(name string) contend.LockFunc {
				dir := "/" + name
				if _, err := conn.Create(dir, nil, 0, anybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return func(context.Context) (contend.UnlockFunc, error) { return nil, err }
				}
				return func(context.Context) (contend.UnlockFunc, error) {
					node, err := createAndList(conn, dir, pipelined)
					return func(context.Context) error { return conn.Delete(node, -1) }, err
				}
			},
			Close: conn.Close,
		}, nil
	}
}

func createAndList(conn *zk.Conn, dir string, pipelined bool) (node string, err error) {
	listed := make(chan error, 1)
	list := func() {
		_, _, err := conn.Children(dir)
		listed <- err
	}
	if pipelined {
		go list()
	}
	node, err = conn.Create(dir+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
	if !pipelined {
		list()
	}
	return node, errors.Join(err, <-listed)
}
