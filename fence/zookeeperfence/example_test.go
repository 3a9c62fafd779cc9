package zookeeperfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
)

var (
	ctx  = context.Background()
	conn *zk.Conn
	m    *locker.Mutex // held
)

// An order is written by the holder of the lock, unless another one has written since.
func ExampleWrite() {
	// Once, with the order itself.
	if err := zookeeperfence.Create(ctx, conn, "/orders/42/token", zk.WorldACL(zk.PermAll)); err != nil {
		fmt.Println(err)
		return
	}
	_, err := zookeeperfence.Write(ctx, conn, "/orders/42/token", m.FencingToken(),
		&zk.SetDataRequest{Path: "/orders/42", Data: []byte("paid"), Version: -1})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}
