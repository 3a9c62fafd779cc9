// Package locktest is for tests of code that takes locks. It makes a [locker.Client] over locks in
// memory. A test can then simulate what servers and other processes do: another holder, a lost
// lock, an outage, a slow backend.
//
//	func TestReport(t *testing.T) {
//		locks := locktest.New(t)
//		release := locks.HoldAsOther("report")
//		err := makeReport(t.Context(), locks.Client) // the code under test
//		if !errors.Is(err, locker.ErrHeld) {
//			t.Errorf("got %v, want an error that matches ErrHeld", err)
//		}
//		release()
//	}
//
// A hold that the code under test has not ended by the end of the test fails the test.
//
// Everything works in a bubble of [testing/synctest], where a TTL of 30 s takes no time and each
// loss comes at its exact time. Make the Client within the bubble.
//
// The page docs/testing.md in the repository shows what to test, and how.
package locktest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// ErrUnreachable is the error of every request of a Client between [Client.Down] and [Client.Up].
var ErrUnreachable = fmt.Errorf("locktest: the backend is unreachable: %w", syscall.ECONNREFUSED)

// Client is a [locker.Client] of a process of its own, with control over what this process sees of
// the backend. Down, Hang, Slow and FailNext concern the requests of this Client alone; Lose and
// HoldAsOther concern the lock, whoever uses it. Several goroutines may call the methods at once.
type Client struct {
	*locker.Client

	t      testing.TB
	driver *faulty
}

// New makes a Client, and closes it when the test ends. All Clients that are made in one test use
// the same locks, as several processes do. If two tests have the same name, their Clients share
// locks. To test two processes, make two Clients. A subtest does not share locks with its parent.
//
// At the end of the test each hold must have ended: by Unlock or Abandon, because it was lost, or
// because the code under test closed the Client. Otherwise the test fails, and the error names the
// lock and the line that took it.
//
// The Client behaves like any other. It renews its holds, and the default TTL is 30 s. Options are
// those of [locker.New].
func New(t testing.TB, opts ...locker.Option) *Client {
	t.Helper()
	inMemory := memory.NewDriver(memory.InSpace("locktest " + t.Name()))
	d := &faulty{
		Driver: inMemory, Operator: inMemory.(driver.Operator),
		faults: &faults{holds: map[*claim]struct{}{}},
	}
	client, err := locker.New(d, opts...)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	client.List(context.Background(), "")(func(string, error) bool { return false }) // tells d the prefix
	c := &Client{client, t, d}
	t.Cleanup(c.end)
	return c
}

// end fails the test if a hold has not ended, and closes the Client.
func (c *Client) end() {
	c.t.Helper()
	c.driver.faults.set(func(f *faults) {
		f.up()
		f.delay, f.next = 0, nil
	})
	for _, leak := range c.driver.faults.leaks() {
		c.t.Errorf("locktest: %s", leak)
	}
	if err := c.Close(); err != nil {
		c.t.Errorf("locktest: %v", err)
	}
}

// Lose ends each hold of the lock called name as if the backend had reported its end: the channel
// of [locker.Hold.Lost] is closed at once, contexts of Do end with the cause [locker.ErrLost], and
// Unlock returns ErrLost. The lock is then free, or a waiter has it. If nobody holds the lock, the
// test fails.
//
// A hold of another Client is lost, too, but that Client hears of it at its next renewal, Extend or
// Unlock.
func (c *Client) Lose(name string) {
	c.t.Helper()
	ctx, d := context.Background(), c.driver
	name = d.prefix + name
	state, _ := d.Operator.Inspect(ctx, name) // a space in memory does not fail
	if err := d.Operator.ForceRelease(ctx, name, state); err != nil {
		c.t.Errorf("locktest: Lose(%q): %v", strings.TrimPrefix(name, d.prefix), err)
		return
	}
	d.faults.lose(name, state.Token)
}

// HoldAsOther takes the lock called name as another process does, which holds it until release is
// called or the test ends. If the lock is held already, or somebody waits for it, the test fails.
func (c *Client) HoldAsOther(name string) (release func()) {
	c.t.Helper()
	ctx := context.Background()
	claim := c.driver.Driver.Claim(driver.Request{Name: c.driver.prefix + name, Metadata: "another process", TTL: ages})
	if _, err := claim.Ask(ctx); err != nil {
		c.t.Errorf("locktest: HoldAsOther(%q): %v", name, err)
		return func() {}
	}
	release = func() { _ = claim.Release(ctx) } // it fails if the hold was lost
	c.t.Cleanup(release)
	return release
}

// ages is the TTL of a hold that does not expire.
const ages = 100 * 365 * 24 * time.Hour

// Down makes each request fail at once with [ErrUnreachable], until Up. A Lock goes on for half a
// TTL before it returns that. Down changes nothing at the backend: holds expire there when their
// TTL has passed, and a waiter keeps its place in the queue.
func (c *Client) Down() { c.driver.faults.set(func(f *faults) { f.down = true }) }

// Hang leaves each request without an answer, until Up or until the context of the request ends.
// After Up the requests that still wait are carried out.
func (c *Client) Hang() {
	c.driver.faults.set(func(f *faults) {
		if f.hang == nil {
			f.hang = make(chan struct{})
		}
	})
}

// Up ends Down and Hang.
func (c *Client) Up() { c.driver.faults.set((*faults).up) }

// Slow makes each request take d, until Slow is called again. Slow(0) ends it. A request whose
// context ends earlier is not carried out.
func (c *Client) Slow(d time.Duration) { c.driver.faults.set(func(f *faults) { f.delay = d }) }

// FailNext makes the next request fail with err and change nothing at the backend. Called n times,
// it concerns the next n requests, in this order. A request is one of those that Lock, Extend,
// Unlock, Inspect or List makes, or a renewal. The Client sends some requests again by itself, such
// as that of an Unlock. If the next request is the first one of a Lock or a TryLock, its
// repetitions fail, too, so that the call returns err. If err looks like an outage, as io.EOF does,
// a Lock returns it after half a TTL. [ErrUnreachable] is an exception: it fails one request only,
// and the Lock goes on.
func (c *Client) FailNext(err error) {
	c.driver.faults.set(func(f *faults) { f.next = append(f.next, err) })
}
