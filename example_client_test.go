package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
)

// A Client over a Driver that the program has made. The adapters' New do this in one step.
func ExampleNew() {
	ctx := context.Background()
	client, err := locker.New(memory.NewDriver(memory.InSpace("example-new")), locker.WithTTL(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	m := client.Mutex("orders/42")
	fmt.Println(m.Lock(ctx), m.Unlock(ctx))
	// Output:
	// <nil> <nil>
}

// Close lets go of what the Client holds, so that nobody has to wait for its TTL.
func ExampleClient_Close() {
	ctx := context.Background()
	client, other := open("example-close"), open("example-close")
	defer other.Close()
	m := client.Mutex("orders/42")
	_ = m.Lock(ctx)

	fmt.Println(client.Close())
	fmt.Println(m.Unlock(ctx))
	fmt.Println(m.Lock(ctx))
	fmt.Println(other.Mutex("orders/42").TryLock(ctx))
	// Output:
	// <nil>
	// locker: unlock "orders/42": the lock was lost: the client is closed
	// locker: lock "orders/42": the client is closed
	// <nil>
}

// Where the program extends its holds itself, each step of the work buys time for the next.
func ExampleMutex_Extend() {
	ctx := context.Background()
	client := open("example-extend", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	defer client.Close()
	m := client.Mutex("import")
	fmt.Println(m.Extend(ctx))

	_ = m.Lock(ctx)
	token, deadline := m.FencingToken(), m.Hold().Deadline()
	fmt.Println(m.Extend(ctx))
	fmt.Println("earlier:", m.Hold().Deadline().Before(deadline), "same token:", m.FencingToken() == token)
	fmt.Println(m.Unlock(ctx))
	// Output:
	// locker: extend "import": the lock is not held
	// <nil>
	// earlier: false same token: true
	// <nil>
}

// Unlock is the last to say whether the work was done alone.
func ExampleMutex_Unlock() {
	ctx := context.Background()
	client := open("example-unlock", locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	defer client.Close()
	m := client.Mutex("report")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	<-m.Hold().Lost() // the work takes longer than the hold lasts

	switch err := m.Unlock(context.WithoutCancel(ctx)); {
	case errors.Is(err, locker.ErrLost):
		fmt.Println("another may have been at work meanwhile")
	case err != nil:
		fmt.Println("held to the end; others wait for the TTL at most:", err)
	}
	fmt.Println(m.Unlock(ctx))
	// Output:
	// another may have been at work meanwhile
	// locker: unlock "report": the lock is not held
}

// An Error has the operation and the lock, for logs and metrics; what to do about it errors.Is
// tells.
func ExampleError() {
	ctx := context.Background()
	client := open("example-error")
	defer client.Close()
	_ = client.Mutex("orders/42").Lock(ctx)

	waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err := client.Mutex("orders/42").Lock(waiting)
	if failed, ok := errors.AsType[*locker.Error](err); ok {
		fmt.Println(failed.Op, failed.Name)
	}
	fmt.Println("another holds it:", errors.Is(err, locker.ErrHeld))
	fmt.Println("no time left:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// lock orders/42
	// another holds it: true
	// no time left: true
}

// After a backend was restored, or exchanged, its tokens may begin below those that resources have
// seen.
func ExampleWithTokenBase() {
	ctx := context.Background()
	const largestSeen = 1 << 60
	client := open("example-token-base", locker.WithTokenBase(largestSeen))
	defer client.Close()
	m := client.Mutex("orders/42")
	_ = m.Lock(ctx)
	fmt.Println(m.FencingToken() > largestSeen)
	fmt.Println(m.Unlock(ctx))
	// Output:
	// true
	// <nil>
}

// A log of what no caller hears of.
func ExampleWithLogger() {
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "token" || a.Key == "held" { // what differs from run to run
			return slog.Attr{}
		}
		return a
	}}))
	client := open("example-logger", locker.WithLogger(logger), locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	m := client.Mutex("orders/42")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	<-m.Hold().Lost()
	_ = m.Unlock(ctx)
	_ = client.Close() // and so all is logged
	// Output:
	// level=WARN msg="lock lost" name=orders/42 cause=expired
}
