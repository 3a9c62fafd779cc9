package zookeeper_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/zookeeper"
)

// A connection that the application has already. It stays the application's to close.
func ExampleNew() {
	ctx := context.Background()
	conn, events, err := zk.Connect([]string{"localhost:2181"}, 20*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	client, err := zookeeper.New(conn, events, locker.WithPrefix("app"))
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

// With digest authentication the connection says who it is, and the ACL that nobody else may touch the nodes.
func ExampleACL() {
	conn, events, err := zk.Connect([]string{"localhost:2181"}, 20*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	if err := conn.AddAuth("digest", []byte("shop:secret")); err != nil {
		fmt.Println(err)
		return
	}

	driver, err := zookeeper.NewDriver(conn, events,
		zookeeper.ACL(zk.AuthACL(zk.PermAll)), zookeeper.Root("/apps/shop"), zookeeper.Tick(2*time.Second))
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
