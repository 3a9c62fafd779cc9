package redisfence_test

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/redis"
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleSet() {
	ctx := context.Background()
	rdb := goredis.NewClient(&goredis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	client, err := redis.New(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		return redisfence.Set(ctx, rdb, "orders/42", m.FencingToken(), "paid", 0)
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}

var pay = redisfence.NewScript(`
	redis.call('HSET', KEYS[1], 'state', 'paid', 'by', ARGV[1])
	return redis.call('ZREM', KEYS[2], KEYS[1])
`)

// Any script may be guarded. In a Redis Cluster its keys and that of the token have one hash tag.
func ExampleScript_Run() {
	rdb := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"node1:7000", "node2:7000"}})
	defer rdb.Close()
	client, err := locker.Open(context.Background(), "redis://node1:7000,node2:7000?cluster=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	m := client.Mutex("orders/42")
	err = m.Do(context.Background(), func(ctx context.Context) error {
		removed, err := pay.Run(ctx, rdb, "{orders/42}:token", m.FencingToken(), []string{"{orders/42}", "{orders/42}:due"}, "me")
		fmt.Println("no longer due:", removed)
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}

// The token of nobody is refused before anything is sent.
func ExampleSet_refused() {
	const notHeld = 0
	err := redisfence.Set(context.Background(), nil, "orders/42", notHeld, "paid", 0)
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(err)
	// Output:
	// true
	// fence: "orders/42": stale fencing token: 0, which is the token of nobody: the lock is not held
}

func ExampleTokenKey() {
	fmt.Println(redisfence.TokenKey("orders/42"))
	fmt.Println(redisfence.TokenKey("{user7}:orders/42"))
	// Output:
	// fence:{orders/42}
	// fence:{user7}:{user7}:orders/42
}
