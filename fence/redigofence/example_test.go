package redigofence_test

import (
	"context"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/redigofence"
)

var (
	ctx  = context.Background()
	pool *redis.Pool
	m    *locker.Mutex // held
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleScript_Run() {
	pay := redigofence.NewScript(`return redis.call('HSET', KEYS[1], 'state', ARGV[1])`)
	added, err := pay.Run(ctx, pool, redigofence.TokenKey("orders/42"), m.FencingToken(), []string{"orders/42"}, "paid")
	fmt.Println(added, err)
}
