package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

// Five servers, and the application's own clients of them.
func ExampleNew() {
	ctx := context.Background()
	nodes, closeAll, err := connectTo("r1:6379", "r2:6379", "r3:6379", "r4:6379", "r5:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeAll()
	client, err := redlock.New(nodes, locker.WithTTL(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.Mutex("orders/42").Do(ctx, func(context.Context) error {
		fmt.Println("nobody else does this now")
		return nil
	})
	if e, ok := errors.AsType[*redlock.Error](err); ok {
		for _, vote := range e.Votes {
			fmt.Println(vote)
		}
	}
}

// connectTo makes a node of each server.
func connectTo(addrs ...string) (nodes []driver.Driver, closeAll func(), err error) {
	var clients []*goredis.Client
	closeAll = func() {
		for _, rdb := range clients {
			_ = rdb.Close()
		}
	}
	for _, addr := range addrs {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
		clients = append(clients, rdb)
		node, err := redis.NewDriver(rdb)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, closeAll, nil
}

// A configuration that leaves too little of the TTL to the holder is refused.
func ExampleNodeTimeout() {
	nodes, closeAll, err := connectTo("r1:6379", "r2:6379", "r3:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeAll()
	d, err := redlock.NewDriver(nodes, redlock.NodeTimeout(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	_, err = locker.New(d, locker.WithTTL(3*time.Second))
	fmt.Println(err)
	// Output:
	// locker: new: not supported by the backend: TTL 3s with a node time-out of 1s: an attempt may take 2 × 1s, and drift 32ms, which leaves 968ms to the holder, and must leave more than half; a renewal leaves a node 428.571428ms: use a TTL of at least 7.001s, or a node time-out below 428.571ms
}

// An Error says what each node answered: here nobody listens at any of the addresses.
func ExampleError() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?ttl=1s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.Mutex("orders/42").TryLock(ctx)
	if e, ok := errors.AsType[*redlock.Error](err); ok {
		for _, vote := range e.Votes {
			fmt.Println(vote.Node, "agreed:", vote.Err == nil)
		}
	}
	fmt.Println("another holds it:", errors.Is(err, locker.ErrHeld))
	// Output:
	// 127.0.0.1:1 agreed: false
	// 127.0.0.1:2 agreed: false
	// 127.0.0.1:3 agreed: false
	// another holds it: false
}
