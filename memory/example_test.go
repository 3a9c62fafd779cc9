package memory_test

import (
	"context"
	"fmt"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
)

// Clients of one space contend, as processes do at one server. A test that has a space of its own
// is alone there.
func ExampleInSpace() {
	ctx := context.Background()
	open := func(space string) *locker.Client {
		client, err := locker.New(memory.NewDriver(memory.InSpace(space)))
		if err != nil {
			panic(err)
		}
		return client
	}
	a, alsoA, b := open("example/a"), open("example/a"), open("example/b")
	defer a.Close()
	defer alsoA.Close()
	defer b.Close()
	fmt.Println(a.Mutex("orders/42").TryLock(ctx))
	fmt.Println(alsoA.Mutex("orders/42").TryLock(ctx))
	fmt.Println(b.Mutex("orders/42").TryLock(ctx))
	// Output:
	// <nil>
	// locker: trylock "orders/42": the lock is held by another owner
	// <nil>
}
