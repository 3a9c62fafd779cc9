package redlock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type testRequest struct {
	sends func(context.Context) error
	ended func(error)
}

func (r testRequest) send(ctx context.Context) error { return r.sends(ctx) }

func (r testRequest) heard(err error, over bool) {
	if over {
		r.ended(err)
	}
}

// A request outlives its caller's context, and has its values, for those who trace it.
func TestCall_hasTheValuesOfItsContextAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "traced"))
		cancel()
		ended := make(chan error, 1)
		require.NoError(t, d.begin())
		before := runtime.NumGoroutine()
		d.send(caller, time.Second, []call{{node: d.nodes[0], request: testRequest{func(ctx context.Context) error {
			assert.Equal(t, "traced", ctx.Value(ctxKey{}))
			assert.LessOrEqual(t, runtime.NumGoroutine(), before+1, "goroutines: none waits for the end of a context")
			select {
			case <-ctx.Done():
				t.Error("it has ended with the caller's")
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(err error) { ended <- err }}}})
		d.work.Done()
		start := time.Now()
		require.EqualError(t, <-ended, "no answer within 1s")
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A node that hangs, and a client library that ends no request: requests must not pile up.
func TestNode_thatHangsCollectsFewRequests(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[0].set(func(n *fakeNode) { n.silent = true })
		before := runtime.NumGoroutine()
		for range 200 {
			l, err := d.Acquire(t.Context(), askFor("x"))
			require.NoError(t, err)
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.Less(t, nodes[0].count[propose], 30)
		assert.Less(t, runtime.NumGoroutine()-before, 30)
		nodes[0].resume()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, holders(nodes), "what it granted when it woke is given back")
		asked := nodes[0].count[propose]
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, asked+1, nodes[0].count[propose], "it is asked again")
		assert.Equal(t, 3, holders(nodes))
		require.NoError(t, l.Release(t.Context()))
	})
}
