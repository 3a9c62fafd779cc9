package redigofence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redigofence"
	"github.com/go-locker/locker/redigo"
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleScript_Run() {
	ctx := context.Background()
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", "localhost:6379") },
	}
	defer pool.Close()
	client, err := redigo.New(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	pay := redigofence.NewScript(`return redis.call('HSET', KEYS[1], 'state', ARGV[1])`)
	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		_, err := pay.Run(ctx, pool, redigofence.TokenKey("orders/42"), m.FencingToken(), []string{"orders/42"}, "paid")
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}
