package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
)

// toldClient is a node that tells its clock, and who it is.
type toldClient struct {
	stageClient
	ahead time.Duration // 0: not known yet
	id    string
	then  time.Duration // that its clock is ahead from when it has said who it is
	hangs bool
	fails error
	asked int
}

func (c *toldClient) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *toldClient) ServerTime() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead), c.ahead != 0
}

func (c *toldClient) Identify(ctx context.Context) (string, error) {
	c.mu.Lock()
	c.asked++
	hangs := c.hangs
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails == nil {
		c.ahead = max(c.ahead, c.then)
	}
	return c.id, c.fails
}

// toldDriver makes a Driver over n nodes whose own clock is an hour ahead.
func toldDriver(t *testing.T, n int) (*backend, []*toldClient) {
	t.Helper()
	var nodes []driver.Driver
	var told []*toldClient
	for _, s := range newStages(n) {
		told = append(told, &toldClient{stageClient: stageClient{stage: s, id: s.clients.Add(1)}})
		nodes = append(nodes, told[len(told)-1])
	}
	made, err := NewDriver(nodes)
	require.NoError(t, err)
	d := made.(*backend)
	d.clock = func() time.Time { return time.Now().Add(time.Hour) }
	return d, told
}

// A client whose clock is wrong comes neither early nor late, once it knows the clocks of a
// majority.
func TestNextPlace_isTheMedianOfTheNodesClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := toldDriver(t, 5)
		ahead := func() time.Duration {
			return time.Until(time.UnixMicro(int64(d.nextPlace() >> 10))).Round(time.Millisecond)
		}
		told[0].ahead, told[1].ahead = time.Second, 2*time.Second
		require.Equal(t, time.Hour, ahead(), "two of five are known")
		told[2].ahead = 48 * time.Hour
		require.Equal(t, 2*time.Second, ahead())
		told[3].ahead, told[4].ahead = -48*time.Hour, time.Minute
		require.Equal(t, 2*time.Second, ahead())
		require.NoError(t, d.Close())
	})
}

// A node that does not say who it is in time has no vote until it does. If it is one that is there
// already, no lock is taken from then on.
func TestIdentify_aNodeThatDoesNotAnswerIsAskedBeforeItsVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := toldDriver(t, 3)
		told[0].id, told[1].id, told[2].id, told[2].hangs = "A", "B", "A", true
		for _, takes := range []time.Duration{100 * time.Millisecond, longestTimeout - 100*time.Millisecond, 0} {
			start := time.Now()
			ctx := t.Context()
			if takes == 100*time.Millisecond {
				ctx = testwait.Context(t, 3*takes)
			}
			l, err := claims.Take(ctx, d, askFor("x"))
			require.NoError(t, err)
			assert.Equal(t, takes, time.Since(start), "it is waited for once, and not for long if ctx ends soon")
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
		}
		l, err := claims.Take(t.Context(), d, askFor("x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		told[2].set(func() { told[2].hangs = false })
		require.NoError(t, l.Extend(t.Context(), ttl), "which asks it to join")
		synctest.Wait()
		for range 2 {
			_, err = claims.Take(t.Context(), d, askFor("y"))
			require.ErrorIs(t, err, driver.ErrUnsupported)
			require.EqualError(t, err, "not supported by the backend: the nodes a:1 and c:1 are one server: each node has to be a server of its own")
		}
		require.NoError(t, l.Extend(t.Context(), ttl), "a hold goes on")
		synctest.Wait()
		assert.Zero(t, told[2].counted(propose))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, d.Close())
	})
}

// Where no majority has said who it is, all are asked again; and else none.
func TestIdentify_isDoneAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := toldDriver(t, 3)
		for i, n := range told {
			n.then, n.fails = time.Second, []error{errRefused, errRefused, nil}[i]
		}
		_, err := claims.Take(t.Context(), d, askFor("x"))
		require.ErrorIs(t, err, errRefused)
		for _, n := range told {
			n.set(func() { n.fails = nil })
		}
		w := wait(t, d)
		require.NoError(t, w.err)
		require.WithinDuration(t, time.Now().Add(time.Second), time.UnixMicro(int64(w.lease.(*claim).waiting.place>>10)), time.Minute, "its place is by the nodes' clocks")
		w.leave()
		var before, after int
		told[0].set(func() { before = told[0].asked })
		w = wait(t, d)
		w.leave()
		told[0].set(func() { after = told[0].asked })
		assert.Equal(t, before, after)
		require.NoError(t, d.Close())
	})
}
