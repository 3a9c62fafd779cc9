package etcd_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
)

// A client that the application has already. It stays the application's to close.
func ExampleNew() {
	ctx := context.Background()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"localhost:2379"},
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cli.Close()

	client, err := etcd.New(cli, locker.WithPrefix("app"))
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

// What etcd promises is known before it is asked, and so is a TTL that it could not honour.
func Example_open() {
	client, err := locker.Open(context.Background(), "etcd://host1,host2,host3?ttl=10s&require=failover,ordered")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Println(client.Guarantees()[locker.Failover])

	_, err = locker.Open(context.Background(), "etcd://host1,host2,host3?ttl=2500ms")
	fmt.Println(err)
	// Output:
	// yes: with one exception. If an etcd leader is paused for a whole TTL, and another replaces it, the old leader may end a session when it goes on, though the Client renews that session
	// locker: open: not supported by the backend: TTL 2.5s: etcd counts in whole seconds: use 2s or 3s
}
