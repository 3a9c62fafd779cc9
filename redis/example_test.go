package redis_test

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redis"
)

// A client that the application has already. It stays the application's to close.
func ExampleNew() {
	ctx := context.Background()
	rdb := goredis.NewClient(&goredis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer rdb.Close()

	client, err := redis.New(rdb, locker.WithPrefix("app"))
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
