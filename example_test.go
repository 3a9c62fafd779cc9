package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/memory"
)

// open is Open of a lock server that other examples do not use.
func open(space string, opts ...locker.Option) *locker.Client {
	client, err := locker.Open(context.Background(), "mem://"+space, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func ExampleOpen() {
	ctx := context.Background()
	// The adapter is imported for its side effect: _ "github.com/go-locker/locker/memory"
	client, err := locker.Open(ctx, "mem://shop?ttl=10s&prefix=app")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	m := client.Mutex("orders/42")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("expires in about", time.Until(m.Hold().Deadline()).Round(time.Second), "unless it is renewed")
	fmt.Println(m.Unlock(ctx))

	_, err = locker.Open(ctx, "redis://localhost:6379")
	fmt.Println(err)
	// Output:
	// expires in about 10s unless it is renewed
	// <nil>
	// locker: open: unknown scheme "redis": add the import _ "github.com/go-locker/locker/redis"
}

// The resource takes the token with every write, and refuses one that is older than it has seen.
func ExampleMutex_Lock() {
	ctx := context.Background()
	client := open("example-lock")
	defer client.Close()

	var newest uint64 // kept by the resource, beside what it protects
	write := func(token uint64) {
		if token == 0 || token < newest {
			fmt.Println("refused: a newer holder has written")
			return
		}
		newest = token
		fmt.Println("written")
	}

	m := client.Mutex("report")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	stale := m.FencingToken()
	_ = m.Unlock(ctx)

	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	write(m.FencingToken())
	write(stale)
	fmt.Println(m.Unlock(context.WithoutCancel(ctx)))
	// Output:
	// written
	// refused: a newer holder has written
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	client := open("example-trylock")
	defer client.Close()
	first, second := client.Mutex("cron"), client.Mutex("cron")

	fmt.Println(first.TryLock(ctx))
	if err := second.TryLock(ctx); errors.Is(err, locker.ErrHeld) {
		fmt.Println("somebody else does it")
	}
	// Output:
	// <nil>
	// somebody else does it
}

// A function that others call under the lock, or without it.
func ExampleMutex_Join() {
	ctx := context.Background()
	client := open("example-join")
	defer client.Close()

	rename := func(ctx context.Context, to string) error {
		return client.Mutex("users/7").Join(ctx, func(ctx context.Context, h *locker.Hold) error {
			fmt.Println("renamed to", to, "with a token:", h.Token() != 0) // the token is for whatever keeps the name
			return ctx.Err()
		})
	}
	fmt.Println(rename(ctx, "Ada"))
	err := client.Mutex("users/7").Do(ctx, func(ctx context.Context) error {
		return rename(ctx, "Grace") // Do in its place would wait for itself
	})
	fmt.Println(err)
	// Output:
	// renamed to Ada with a token: true
	// <nil>
	// renamed to Grace with a token: true
	// <nil>
}

// Do tells its function that the lock was lost by the end of its context.
func ExampleMutex_Do() {
	client := open("example-do")
	m := client.Mutex("migration", locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
	defer client.Close()

	err := m.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("a step under the lock")
		return nil
	})
	fmt.Println(err)

	err = m.Do(context.Background(), func(ctx context.Context) error {
		<-ctx.Done() // a step that takes longer than the lock lasts
		fmt.Println(context.Cause(ctx))
		return nil
	})
	fmt.Println(errors.Is(err, locker.ErrLost))
	// Output:
	// a step under the lock
	// <nil>
	// the lock was lost: it was not extended in time
	// true
}

// Several machines start the same short job at 3:00, and their clocks differ by a second or two.
func ExampleAtLeast() {
	ctx := context.Background()
	report := func(context.Context) error { fmt.Println("the report is made"); return nil }
	for range 3 { // machines
		client := open("example-at-least")
		m := client.Mutex("report", locker.AtLeast(time.Minute))
		if ran, err := m.TryDo(ctx, report); err != nil {
			fmt.Println(ran, err) // the report has failed, or has not begun: ran tells
		}
		client.Close() // the process ends; the lock stays taken
	}
	// Output: the report is made
}

// The error of Do tells whether the function ran.
func ExampleMutex_Do_errors() {
	ctx := context.Background()
	client := open("example-do-errors")
	defer client.Close()
	m := client.Mutex("invoices", locker.WithTTL(200*time.Millisecond), locker.WithoutRenewal())

	tell := func(err error) {
		var failed *locker.Error
		switch {
		case err == nil:
			fmt.Println("the work is done")
		case !errors.As(err, &failed):
			fmt.Println("the work has failed:", err)
		case failed.Op == "unlock":
			fmt.Println("the work ran:", err)
		default:
			fmt.Println("the work has not begun:", err)
		}
	}
	tell(m.Do(ctx, func(context.Context) error { return nil }))
	tell(m.Do(ctx, func(context.Context) error { return errors.New("no paper") }))
	tell(m.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done() // it takes too long
		return fmt.Errorf("page 7: %w", context.Cause(ctx))
	}))
	tell(m.Do(ctx, func(ctx context.Context) error {
		tell(client.Mutex("invoices").TryLock(ctx))
		return nil
	}))
	// Output:
	// the work is done
	// the work has failed: no paper
	// the work ran: locker: unlock "invoices": page 7: the lock was lost: it was not extended in time
	// the work has not begun: locker: trylock "invoices": the lock is held by another owner
	// the work is done
}

// A Hold is one acquisition of the lock. It can be passed around: it never speaks of a later one.
func ExampleMutex_Acquire() {
	ctx := context.Background()
	client := open("example-acquire")
	defer client.Close()
	m := client.Mutex("leader")

	first, err := m.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.Unlock(ctx))
	second, err := m.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.Token() < second.Token())
	fmt.Println(first.Unlock(ctx))
	// Output:
	// <nil>
	// true
	// locker: unlock "leader": the lock is not held
}

// A holder gives way when somebody waits for the lock: here one that keeps a cache warm, while its
// successor starts.
func ExampleHold_Wanted() {
	client, ctx := open("hold-wanted"), context.Background()
	defer client.Close()
	hold, err := client.Mutex("warmer").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	successor, started := client.Mutex("warmer"), make(chan error)
	go func() { started <- successor.Lock(ctx) }()

	select {
	case <-hold.Wanted():
		fmt.Println("gives way")
	case <-hold.Lost():
		fmt.Println("lost")
	}
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-started)
	fmt.Println(successor.Unlock(ctx))
	// Output:
	// gives way
	// <nil>
	// <nil>
}

// What takes time to stop gets a context that ends earlier than the hold.
func ExampleHold_Context() {
	ctx := context.Background()
	client := open("example-context", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
	defer client.Close()
	hold, err := client.Mutex("leader").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work, cancel := hold.Context(ctx, 9800*time.Millisecond)
	defer cancel()
	<-work.Done()
	fmt.Println(context.Cause(work))
	fmt.Println("still held:", hold.Err() == nil)
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// the lock "leader" was not renewed: no more than 9.8s is left of the hold
	// still held: true
	// <nil>
}

// Who holds a lock, for people who look: nothing comes of it to those who do.
func ExampleClient_Inspect() {
	ctx := context.Background()
	client := open("example-inspect", locker.WithTTL(time.Minute), locker.WithMetadata("host 7, pid 4711"))
	defer client.Close()
	m := client.Mutex("nightly")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}

	state, err := client.Inspect(ctx, "nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held by", state.Holder.Metadata, "for", state.Left.Round(time.Second), "and", len(state.Waiters), "wait")
	fmt.Println(state.Token == m.FencingToken())

	_ = m.Unlock(ctx)
	state, err = client.Inspect(ctx, "nightly")
	fmt.Println(state.Held, err)
	// Output:
	// held by host 7, pid 4711 for 1m0s and 0 wait
	// true
	// false <nil>
}

// A program that needs more than its backend promises learns it at start.
func ExampleRequire() {
	_, err := locker.Open(context.Background(), "mem://example-require", locker.Require(locker.Fencing, locker.Failover))
	fmt.Println(errors.Is(err, locker.ErrUnsupported))
	fmt.Println(err)
	// Output:
	// true
	// locker: open: not supported by the backend: "failover" is not promised: there is one process, and no server to fail over to
}

// An Observer hears of every call, and of how holds fare. The module
// github.com/go-locker/locker/otel has one that makes spans and metrics of that.
func ExampleWithObserver() {
	ctx := context.Background()
	client := open("example-observer", locker.WithObserver(locker.Observer{
		Done: func(_ context.Context, call locker.Call, r locker.Result) {
			fmt.Println(call.Op, call.Name, r.Err)
		},
		Ended: func(_ context.Context, hold locker.HoldID, end locker.HoldEnd) {
			fmt.Println("ended:", hold.Name, end.Cause, "with half of its TTL left:", end.Left > 15*time.Second)
		},
	}))
	defer client.Close()
	m := client.Mutex("orders/42")
	_ = m.Lock(ctx)
	_ = m.Unlock(ctx)
	_ = m.Unlock(ctx)
	// Output:
	// lock orders/42 <nil>
	// ended: orders/42 unlocked with half of its TTL left: true
	// unlock orders/42 <nil>
	// unlock orders/42 locker: unlock "orders/42": the lock is not held
}
