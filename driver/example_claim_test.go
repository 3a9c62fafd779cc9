package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// table is a backend without a queue: each method is one request, and an atomic step.
type table struct {
	owner string
	token uint64
	until time.Time
}

// put sets the owner, if nobody else is, and returns the token, or 0.
func (t *table) put(owner string, ttl time.Duration) uint64 {
	now := time.Now()
	if t.owner != owner && now.Before(t.until) {
		return 0
	}
	if t.owner != owner || !now.Before(t.until) {
		t.token++
	}
	t.owner, t.until = owner, now.Add(ttl)
	return t.token
}

// change sets the end, if owner has it.
func (t *table) change(owner string, until time.Time) bool {
	ours := t.owner == owner && time.Now().Before(t.until)
	if ours {
		t.until = until
	}
	return ours
}

// tableDriver is a Claimer over it.
type tableDriver struct {
	table  *table
	owners int
}

func (d *tableDriver) Claim(req driver.Request) driver.Claim {
	d.owners++ // elsewhere 16 random bytes
	return &tableClaim{Request: req, table: d.table, owner: fmt.Sprint(d.owners)}
}

func (d *tableDriver) Guarantees() driver.Guarantees {
	return driver.Guarantees{driver.Exclusive: {Level: driver.LevelYes}, driver.Fencing: {Level: driver.LevelYes}}
}

func (d *tableDriver) Close() error { return nil }

type tableClaim struct {
	driver.Request

	table *table
	owner string
	token uint64
	until time.Time
}

func (c *tableClaim) Ask(context.Context) (next time.Duration, err error) {
	if c.Shared {
		return 0, driver.ErrUnsupported
	}
	sent := time.Now()
	if c.token = c.table.put(c.owner, c.TTL); c.token == 0 {
		return 0, driver.ErrHeld // the core asks again, after a while
	}
	c.until = sent.Add(c.TTL)
	return 0, nil
}

func (c *tableClaim) Token() uint64           { return c.token }
func (c *tableClaim) Validity() time.Duration { return time.Until(c.until) }

func (c *tableClaim) Extend(_ context.Context, ttl time.Duration) error {
	sent := time.Now()
	if !c.table.change(c.owner, sent.Add(ttl)) {
		return driver.ErrLost
	}
	c.until = sent.Add(ttl)
	return nil
}

func (c *tableClaim) Release(context.Context) error {
	if c.token > 0 && !c.table.change(c.owner, time.Time{}) {
		return driver.ErrLost
	}
	return nil
}

// A backend without a queue. The core waits, renews, and looks after what was lost.
func ExampleDriver() {
	client, err := locker.New(&tableDriver{table: &table{}})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	first, second := client.Mutex("orders/42"), client.Mutex("orders/42")
	fmt.Println(first.Lock(ctx), first.FencingToken())
	fmt.Println(errors.Is(second.TryLock(ctx), locker.ErrHeld))
	fmt.Println(first.Unlock(ctx))
	fmt.Println(second.Lock(ctx), second.FencingToken())
	// Output:
	// <nil> 1
	// true
	// <nil>
	// <nil> 2
}
