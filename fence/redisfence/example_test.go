package redisfence_test

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
)

var (
	ctx = context.Background()
	rdb goredis.UniversalClient
	m   *locker.Mutex // held
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleSet() {
	err := redisfence.Set(ctx, rdb, "orders/42", m.FencingToken(), "paid", 0)
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
	removed, err := pay.Run(ctx, rdb, "{orders/42}:token", m.FencingToken(), []string{"{orders/42}", "{orders/42}:due"}, "me")
	fmt.Println("no longer due:", removed, err)
}

func ExampleTokenKey() {
	fmt.Println(redisfence.TokenKey("orders/42"))
	fmt.Println(redisfence.TokenKey("{user7}:orders/42"))
	// Output:
	// fence:{orders/42}
	// fence:{user7}:{user7}:orders/42
}
