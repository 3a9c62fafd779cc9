package redisscript

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/callctx"
)

// call is a context as the core makes it, and what may end it.
type call struct {
	callctx.Context

	byCaller, byOwner context.CancelFunc
}

func newCall(t *testing.T, owned bool) *call {
	c := &call{}
	var caller, owner context.Context
	caller, c.byCaller = context.WithCancel(t.Context())
	owner, c.byOwner = context.WithCancel(t.Context())
	if owned {
		c.BeginUntil(caller, owner, time.Now().Add(3*time.Second))
	} else {
		c.Begin(caller)
	}
	t.Cleanup(func() { c.byCaller(); c.byOwner(); c.End(nil) })
	return c
}

// A request is waited for until any of what its context may end by.
func TestSender_aCallEnds(t *testing.T) {
	for name, c := range map[string]struct {
		owned bool
		end   func(*call)
		after time.Duration
	}{
		"by its caller":              {false, func(c *call) { c.byCaller() }, time.Second},
		"by the core":                {false, func(c *call) { c.End(locker.ErrClosed) }, time.Second},
		"by its caller, a release's": {true, func(c *call) { c.byCaller() }, time.Second},
		"by the Client":              {true, func(c *call) { c.byOwner() }, time.Second},
		"in time":                    {true, func(*call) {}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				d := NewDriver(g)
				ctx := newCall(t, c.owned)
				time.AfterFunc(time.Second, func() { c.end(ctx) })
				began := time.Now()
				_, err := d.Acquire(&ctx.Context, locker.Request{Name: "x", TTL: time.Hour})
				assert.Equal(t, c.after+moment, time.Since(began))
				assert.Equal(t, ctx.Err(), err)
				synctest.Wait()
				require.Error(t, g.latest.Err(), "nobody waits")
				require.Len(t, g.sizes(), 1)
				_, err = d.Acquire(&ctx.Context, locker.Request{Name: "x", TTL: time.Hour})
				require.Error(t, err)
				assert.Len(t, g.sizes(), 1, "nothing is sent for who waits no more")
				close(g.gate)
				require.NoError(t, d.Close(noClient))
			})
		})
	}
}

// A wait in the queue ends as its context does.
func TestHub_aWaitEnds(t *testing.T) {
	for name, end := range map[string]func(*call){
		"by its caller": func(c *call) { c.byCaller() },
		"by the core":   func(c *call) { c.End(locker.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				d := NewDriver(&puppet{
					dial: func(context.Context) (Subscription, error) { return w, nil },
					run:  func(context.Context, *Script, string) (any, error) { return heldReply(7), nil },
				})
				ctx := newCall(t, false)
				time.AfterFunc(time.Millisecond, func() { end(ctx) }) // before the first look
				began := time.Now()
				err := <-queued(&ctx.Context, d, request)
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, time.Millisecond, time.Since(began))
				require.NoError(t, d.Close(noClient))
			})
		})
	}
}

// Who has given up before the trip is not one who waits for it.
func TestSender_aTripEndsWhoeverWasDroppedFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		takes(t.Context(), d, mostTrips, time.Minute)
		synctest.Wait()
		dropped, drop := context.WithCancel(t.Context())
		waits, leave := context.WithCancel(t.Context())
		takes(dropped, d, 1, time.Minute)
		takes(waits, d, 1, time.Minute)
		synctest.Wait()
		drop()
		synctest.Wait()
		g.gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1}, g.sizes())
		require.NoError(t, g.latest.Err())
		leave()
		synctest.Wait()
		require.ErrorIs(t, g.latest.Err(), context.Canceled)
		close(g.gate)
		require.NoError(t, d.Close(noClient))
	})
}
