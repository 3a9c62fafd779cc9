package redigo_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redigo"
)

// A pool that the application has already. It stays the application's to close.
func ExampleNew() {
	ctx := context.Background()
	pool := &redis.Pool{
		MaxIdle:     3,
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", "localhost:6379") },
	}
	defer pool.Close()

	client, err := redigo.New(pool, locker.WithPrefix("app"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.Mutex("orders/42").Do(ctx, func(context.Context) error {
		fmt.Println("nobody else does this now")
		return nil
	})
	fmt.Println(err)
}

// A lock that at least one replica knows of when Lock returns.
func ExampleWaitReplicas() {
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", "localhost:6379") },
	}
	defer pool.Close()

	driver, err := redigo.NewDriver(pool, redigo.WaitReplicas(1, 200*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := locker.New(driver)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	if err := client.Mutex("orders/42").Lock(context.Background()); err != nil {
		fmt.Println(err)
	}
}
