package natslock_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/examples/nats"
)

// A server within the program stands for yours.
func Example() {
	dir, err := os.MkdirTemp("", "natslock")
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		panic(err)
	}
	s.Start()
	defer func() { s.Shutdown(); _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	client, err := locker.Open(ctx, "nats://"+s.Addr().String()+"?bucket=jobs&ttl=10s&metadata=host-1")
	if err != nil {
		panic(err)
	}
	defer client.Close()

	first, second := client.Mutex("orders/42"), client.Mutex("orders/42")
	fmt.Println(first.Lock(ctx))
	err = second.TryLock(ctx)
	fmt.Println(errors.Is(err, locker.ErrHeld), err)
	fmt.Println(first.Unlock(ctx))
	fmt.Println(second.Lock(ctx))
	// Output:
	// <nil>
	// true locker: trylock "orders/42": the lock is held by another owner, "host-1"
	// <nil>
	// <nil>
}
