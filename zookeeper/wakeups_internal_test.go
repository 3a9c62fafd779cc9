package zookeeper

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While no server can be reached, calls wait to be told that one can, and do nothing else. What a wake-up costs shows in what is
// allocated: a call that looked every few milliseconds would do so a hundred thousand times.
func TestCalls_sleepThroughAnOutage(t *testing.T) {
	for name, own := range map[string]bool{"a connection of its own": true, "the application's": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const (
					calls  = 50
					outage = 5 * time.Minute
				)
				d := newDriver()
				conn := unreachable(t, d)
				if !own {
					d.conn = conn
				}
				s := newSession(d, time.Hour, false)
				s.conn = conn
				ctx, cancel := context.WithTimeout(t.Context(), outage)
				defer cancel()
				touch := func(conn *zk.Conn) (bool, error) { return true, nil }
				var waiting sync.WaitGroup
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range calls {
					waiting.Go(func() {
						_, err := call(ctx, s, reads, touch)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					})
					waiting.Go(func() {
						_, err := call(ctx, s, reads|loosely, touch)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					})
				}
				waiting.Wait()
				runtime.ReadMemStats(&after)
				most := uint64(200 * calls)
				if !own {
					most += uint64(outage/pollEvery) * 10 // one goroutine looks
				}
				assert.Less(t, after.Mallocs-before.Mallocs, most)
				require.NoError(t, d.Close())
			})
		})
	}
}

// unreachable is a connection that nobody answers, until d is closed.
func unreachable(t *testing.T, d *Driver) *zk.Conn {
	d.servers = []string{"h:1"}
	conn, events, err := zk.Connect(d.servers, time.Hour, zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithHostProvider(newNetwork(d.ctx, d, time.Hour)),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			<-d.ctx.Done()
			return nil, errors.New("nobody")
		}))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}
