package etcdfence_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd" // registers etcd://
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/etcdfence"
)

// An order and its log are written together, by the holder of the lock, unless another one has written since.
func ExampleWrite() {
	ctx := context.Background()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cli.Close()
	client, err := locker.Open(ctx, "etcd://localhost:2379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	m := client.Mutex("orders/42")
	err = m.Do(ctx, func(ctx context.Context) error {
		_, err := etcdfence.Write(ctx, cli, "orders/42/token", m.FencingToken(),
			clientv3.OpPut("orders/42", "paid"),
			clientv3.OpPut("orders/42/log/7", "paid in full"))
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("another holder has written since: begin anew, with a lock of one's own")
	}
}
