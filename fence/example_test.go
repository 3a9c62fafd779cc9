package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	_ "github.com/go-locker/locker/memory"
)

// A holder that is paused past its TTL wakes up, and writes.
func Example() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-fence")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	var guard fence.Memory // beside the resource, in its process
	save := func(token uint64, s string) error {
		return guard.Write(ctx, "orders/42", token, func(context.Context) error {
			fmt.Println("saved:", s)
			return nil
		})
	}

	m := client.Mutex("orders/42")
	paused, _ := m.Acquire(ctx)
	_ = paused.Unlock(ctx) // stands for the TTL, which passes while the holder sleeps
	next, _ := m.Acquire(ctx)

	fmt.Println(save(next.Token(), "by the next holder"))
	fmt.Println("refused:", errors.Is(save(paused.Token(), "by the one that was paused"), fence.ErrStale))
	// Output:
	// saved: by the next holder
	// <nil>
	// refused: true
}

// A resource that keeps the newest token itself calls Check in the transaction, or under the lock, that writes.
func ExampleCheck() {
	var newest uint64
	for _, token := range []uint64{33, 34, 33, 0} {
		if err := fence.Check("orders/42", token, newest); err != nil {
			fmt.Println(err)
			continue
		}
		newest = token
		fmt.Println("written with", token)
	}
	// Output:
	// written with 33
	// written with 34
	// fence: "orders/42": stale fencing token: 33, the holder of 34 has written
	// fence: "orders/42": stale fencing token: 0, which is the token of nobody: the lock is not held
}
