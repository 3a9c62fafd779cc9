package zookeeperfence_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	_ "github.com/go-locker/locker/zookeeper" // registers zookeeper://
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleWrite() {
	ctx := context.Background()
	conn, _, err := zk.Connect([]string{"localhost:2181"}, 20*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client, err := locker.Open(ctx, "zookeeper://localhost:2181")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	// Once, with the order itself.
	if err := zookeeperfence.Create(ctx, conn, "/orders/42/token", zk.WorldACL(zk.PermAll)); err != nil {
		fmt.Println(err)
		return
	}

	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		_, err := zookeeperfence.Write(ctx, conn, "/orders/42/token", m.FencingToken(),
			&zk.SetDataRequest{Path: "/orders/42", Data: []byte("paid"), Version: -1})
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}
