package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/locktest"
)

// test stands for the *testing.T of a real test. It prints why the test fails.
type test struct {
	testing.TB
	name     string
	cleanups []func()
}

var line = regexp.MustCompile(`[^ ]*/(\w+\.go):\d+`)

func (t *test) Name() string     { return t.name }
func (t *test) Helper()          {}
func (t *test) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *test) Errorf(format string, args ...any) {
	fmt.Println("FAIL:", line.ReplaceAllString(fmt.Sprintf(format, args...), "$1"))
}

func (t *test) Fatalf(format string, args ...any) { t.Errorf(format, args...) }

func (t *test) end() {
	for _, f := range t.cleanups {
		f()
	}
}

// A hold that the code under test forgets fails the test.
func ExampleNew() {
	t := &test{name: "TestBilling"} // in a test: the *testing.T that it is given
	defer t.end()
	ctx := context.Background()
	locks := locktest.New(t)

	bill := func(client *locker.Client) error { // the code under test
		return client.Mutex("billing").Lock(ctx)
	}
	fmt.Println(bill(locks.Client))
	// Output:
	// <nil>
	// FAIL: locktest: the lock "billing" is still held at the end of the test, taken at example_test.go
}

// What becomes of work whose lock is lost halfway?
func ExampleClient_Lose() {
	t := &test{name: "TestLoss"}
	defer t.end()
	locks := locktest.New(t)

	err := locks.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		locks.Lose("report") // as an operator does, or a server that forgets
		if ctx.Err() != nil {
			return context.Cause(ctx) // the rest is not written
		}
		return errors.New("written without the lock")
	})
	fmt.Println(err)
	// Output:
	// locker: unlock "report": the lock was lost: it had ended at the backend
}

func ExampleClient_HoldAsOther() {
	t := &test{name: "TestHeld"}
	defer t.end()
	ctx := context.Background()
	locks := locktest.New(t)

	release := locks.HoldAsOther("cron")
	m := locks.Mutex("cron")
	fmt.Println(m.TryLock(ctx))
	release()
	fmt.Println(m.TryLock(ctx), m.Unlock(ctx))
	// Output:
	// locker: trylock "cron": the lock is held by another owner, "another process"
	// <nil> <nil>
}

// An outage that is over before the TTL costs nothing; a longer one costs the lock.
func ExampleClient_Down() {
	t := &test{name: "TestOutage"}
	defer t.end()
	ctx := context.Background()
	locks := locktest.New(t, locker.WithTTL(300*time.Millisecond)) // in a bubble of synctest, any TTL

	m := locks.Mutex("leader")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	locks.Down()
	fmt.Println(errors.Is(locks.Mutex("other").TryLock(ctx), locktest.ErrUnreachable))
	<-m.Hold().Lost()
	locks.Up()
	fmt.Println(m.Unlock(ctx))
	// Output:
	// true
	// locker: unlock "leader": the lock was lost: it was not extended in time
}

func ExampleClient_FailNext() {
	t := &test{name: "TestFailNext"}
	defer t.end()
	ctx := context.Background()
	locks := locktest.New(t)

	locks.FailNext(errors.New("connection reset by peer"))
	m := locks.Mutex("x")
	fmt.Println(m.TryLock(ctx))
	fmt.Println(m.TryLock(ctx), m.Unlock(ctx))
	// Output:
	// locker: trylock "x": connection reset by peer
	// <nil> <nil>
}
