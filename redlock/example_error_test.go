package redlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redlock"
)

// An Error says what each node answered: here nobody listens at any of the addresses.
func ExampleError() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?ttl=1s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.Mutex("orders/42").TryLock(ctx)
	if e, ok := errors.AsType[*redlock.Error](err); ok {
		for _, vote := range e.Votes {
			fmt.Println(vote.Node, "agreed:", vote.Err == nil)
		}
	}
	fmt.Println("another holds it:", errors.Is(err, locker.ErrHeld))
	// Output:
	// 127.0.0.1:1 agreed: false
	// 127.0.0.1:2 agreed: false
	// 127.0.0.1:3 agreed: false
	// another holds it: false
}
