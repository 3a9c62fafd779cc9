package etcdfence_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/etcdfence"
)

var (
	ctx = context.Background()
	cli *clientv3.Client
	m   *locker.Mutex // held
)

// An order and its log are written together, by the holder of the lock, unless another one has written since.
func ExampleWrite() {
	_, err := etcdfence.Write(ctx, cli, "orders/42/token", m.FencingToken(),
		clientv3.OpPut("orders/42", "paid"),
		clientv3.OpPut("orders/42/log/7", "paid in full"))
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}
