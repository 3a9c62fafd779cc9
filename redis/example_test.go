package redis_test

import (
	"context"
	"fmt"
	"time"

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

// The servers behind three sentinels. A take has to be acknowledged by one replica.
func Example_sentinel() {
	client, err := locker.Open(context.Background(),
		"redis://user:password@s1,s2,s3/0?master_name=mymaster&replicas=1&replica_timeout=500ms")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Close())
}

// A Redis Cluster, over TLS: some of its nodes will do.
func Example_cluster() {
	client, err := locker.Open(context.Background(),
		"rediss://user:password@node1:7000,node2:7000?cluster=true&tls_ca=/etc/redis/ca.pem")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Close())
}

// A client of the application's own, behind sentinels, and replicas that have to acknowledge.
func ExampleWaitReplicas() {
	rdb := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName:            "mymaster",
		SentinelAddrs:         []string{"s1:26379", "s2:26379", "s3:26379"},
		ContextTimeoutEnabled: true,
		ReadTimeout:           time.Second, // with the retries less than DialTimeout
	})
	defer rdb.Close()

	driver, err := redis.NewDriver(rdb, redis.WaitReplicas(1, 500*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := locker.New(driver, locker.WithTTL(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Close())
}
