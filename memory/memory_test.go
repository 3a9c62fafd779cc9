package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
)

func TestOpen_sharesNamesByHost(t *testing.T) {
	ctx := t.Context()
	lock := func(url string) error {
		c, err := locker.Open(ctx, url)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c.Mutex("x").TryLock(ctx)
	}
	require.NoError(t, lock("mem://one"))
	require.ErrorIs(t, lock("mem://one/"), locker.ErrHeld)
	require.NoError(t, lock("mem://two"))

	require.NoError(t, lock("mem://"))
	c, err := memory.New()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld, "New shares the names of mem://")
	d, err := locker.New(memory.NewDriver(memory.InSpace("two")))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	require.ErrorIs(t, d.Mutex("x").TryLock(ctx), locker.ErrHeld)
}

func TestImport_registersItsSchemeAlone(t *testing.T) {
	assert.Equal(t, []string{"mem"}, driver.Schemes())
	_, err := locker.Open(t.Context(), "redis://localhost")
	require.ErrorContains(t, err, `add the import _ "github.com/go-locker/locker/redis"`)
}

func TestOpen_refusesWhatMemoryHasNot(t *testing.T) {
	for _, url := range []string{"mem://user@x", "mem://u:secret@x", "mem://x:1", "mem://x,y", "mem://x/path", "mem://x?size=3"} {
		_, err := locker.Open(t.Context(), url)
		require.ErrorContains(t, err, "mem://", url)
		assert.NotContains(t, err.Error(), "secret")
	}
	_, err := locker.Open(t.Context(), "mem://x?require=failover")
	require.ErrorIs(t, err, locker.ErrUnsupported)
	c, err := locker.Open(t.Context(), "mem://x?require=exclusive,fencing,ordered,woken")
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func ExampleNew() {
	ctx := context.Background()
	client, _ := memory.New()
	defer client.Close()

	m := client.Mutex("orders/42")
	if err := m.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", m.FencingToken() > 0)
	fmt.Println("unlock:", m.Unlock(ctx))
	// Output:
	// held: true
	// unlock: <nil>
}

// What an Observer does is its own; being told costs nothing, and neither does that there might be
// one.
func TestObserver_costsNoAllocation(t *testing.T) {
	idle := locker.WithObserver(locker.Observer{
		Start:   func(ctx context.Context, _ locker.Call) context.Context { return ctx },
		Done:    func(context.Context, locker.Call, locker.Result) {},
		Held:    func(context.Context, locker.HoldID) {},
		Ended:   func(context.Context, locker.HoldID, locker.HoldEnd) {},
		Renewed: func(locker.HoldID, locker.Renewal) {},
	})
	for _, opts := range [][]locker.Option{nil, {idle}} {
		c := testwait.Closed(memory.New(opts...))(t)
		m := c.Mutex(t.Name())
		allocs := testing.AllocsPerRun(2000, func() {
			if m.Lock(t.Context()) != nil || m.Unlock(t.Context()) != nil {
				t.Error("not taken")
			}
		})
		assert.LessOrEqual(t, allocs, 10.0, "of a Lock and an Unlock, with and without an Observer")
	}
}

func TestInspect(t *testing.T) {
	harness.Inspect(t, harness.Inspection{
		URL: "mem://inspect", TTL: 300 * time.Millisecond,
		Left: true, Since: true, TokenWhenWaited: true, Queue: true, IDs: true, TellsHolder: true, TellsMetadata: true,
	})
}

func TestAbandon(t *testing.T) {
	harness.Abandon(t, "mem://abandon?", time.Second)
}

// Who is granted the lock while it waits, and asks a while later, has it for a TTL from then.
func TestQueue_aGrantLastsFromTheRequestThatHearsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		d := memory.NewDriver(memory.InSpace(t.Name()))
		held, err := claims.Take(t.Context(), d, driver.Request{Name: "x", TTL: ttl})
		require.NoError(t, err)
		woken := 0
		waits := d.Claim(driver.Request{Name: "x", TTL: ttl, Wake: func() { woken++ }})
		_, err = waits.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		require.NoError(t, held.Release(t.Context()))
		assert.Equal(t, 1, woken)
		time.Sleep(ttl / 2)
		_, err = waits.Ask(t.Context())
		require.NoError(t, err)
		assert.Equal(t, ttl, waits.Validity())
	})
}
