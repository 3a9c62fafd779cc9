package redisscript

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// heavy is an error of a client library that refers to much.
type heavy [1000]byte

func (*heavy) Error() string { return "too late" }

// A Driver that has nothing to do keeps neither a lease nor what its callers had in their contexts.
func TestSender_keepsNothingOfWhatIsOver(t *testing.T) {
	gate := make(chan struct{})
	var failed atomic.Pointer[weak.Pointer[heavy]]
	p := &puppet{run: func(context.Context, *Script, string) (any, error) {
		<-gate
		err := new(heavy)
		latest := weak.Make(err)
		failed.Store(&latest)
		return nil, err
	}}
	d := NewDriver(p)
	const n = 2 * maxBatches
	leases, values := make([]weak.Pointer[lease], n), make([]weak.Pointer[[1000]byte], n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			big := new([1000]byte)
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), contextKey{}, big), 10*time.Millisecond)
			defer cancel()
			l, err := d.Acquire(ctx, driver.Request{Name: "x", TTL: time.Minute})
			assert.Equal(t, context.DeadlineExceeded, err)
			values[i] = weak.Make(big)
			if l != nil {
				leases[i] = weak.Make(l.(*lease))
			}
		})
	}
	all.Wait()
	close(gate)
	testwait.Patience(patient).Until(t, "it is collected", func() bool {
		runtime.GC()
		for i := range n {
			if leases[i].Value() != nil || values[i].Value() != nil {
				return false
			}
		}
		return failed.Load().Value() == nil
	})
	require.NoError(t, d.Close(noClient))
}

// A lock that is held, perhaps for long, costs nothing for having waited.
func TestHub_aWaiterThatHasLeftKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		var asked atomic.Int32
		p := &puppet{dial: func(context.Context) (Subscription, error) { return w, nil }}
		p.run = func(context.Context, *Script, string) (any, error) {
			if asked.Add(1) == 1 {
				return heldReply(7), nil
			}
			return grantedReply(), nil
		}
		d := NewDriver(p)
		l, err := d.AcquireQueued(t.Context(), forOneSecond, func(error) {})
		require.NoError(t, err)
		left := l.(*lease).waiter
		assert.Nil(t, left.woken)
		assert.Nil(t, left.list)
		require.NoError(t, d.Close(noClient))
	})
}
