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
	var nodes []driver.Driver
	for _, addr := range []string{"r1:6379", "r2:6379", "r3:6379", "r4:6379", "r5:6379"} {
		rdb := goredis.NewClient(&goredis.Options{Addr: addr, ContextTimeoutEnabled: true})
		defer rdb.Close() //nolint:revive,gocritic // all are used until the end
		node, err := redis.NewDriver(rdb)
		if err != nil {
			fmt.Println(err)
			return
		}
		nodes = append(nodes, node)
	}
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

// A configuration that leaves too little of the TTL to the holder is refused.
func ExampleNodeTimeout() {
	_, err := locker.Open(context.Background(), "redlock://r1,r2,r3?node_timeout=1s&ttl=3s")
	fmt.Println(err)
	// Output:
	// locker: open: not supported by the backend: TTL 3s with a node time-out of 1s: an attempt may take 2 × 1s, and drift 32ms, which leaves 968ms to the holder, and must leave more than half; a renewal leaves a node 428.571428ms: use a TTL of at least 7.001s, or a node time-out below 428.571ms
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
