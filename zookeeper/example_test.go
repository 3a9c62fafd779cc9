package zookeeper_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/zookeeper"
)

func ExampleNew() {
	ctx := context.Background()
	client, err := zookeeper.New([]string{"host1:2181", "host2:2181", "host3:2181"}, locker.WithPrefix("app"), locker.WithTTL(20*time.Second))
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

// A user of its own, TLS, and nodes below a path of the application's.
func ExampleNewDriver() {
	driver, err := zookeeper.NewDriver([]string{"host1:2281", "host2:2281", "host3:2281"},
		zookeeper.Auth("shop", "secret"), zookeeper.TLS(&tls.Config{}), zookeeper.Root("/apps/shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := locker.New(driver)
	if err != nil {
		_ = driver.Close()
		fmt.Println(err)
		return
	}
	defer client.Close()

	fmt.Println(client.Mutex("orders/42").Lock(context.Background()))
}

// What ZooKeeper promises is known before it is asked, and so is a TTL that it could not honour.
func Example_open() {
	client, err := locker.Open(context.Background(), "zookeeper://host1,host2,host3/apps/shop?ttl=20s&require=failover,ordered")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Println(client.Guarantees()[locker.Failover])

	_, err = locker.Open(context.Background(), "zookeeper://host1,host2,host3?tick=2s&ttl=5s")
	fmt.Println(err)
	// Output:
	// yes
	// locker: open: not supported by the backend: TTL 5s: with a tick of 2s use 8s or more, or say with the parameter or option tick what tickTime the servers have
}
