package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// timedClient is a node that tells its clock.
type timedClient struct {
	stageClient
	ahead time.Duration
}

func (c *timedClient) ServerTime() (time.Time, bool) { return time.Now().Add(c.ahead), c.ahead != 0 }

// A client whose clock is wrong comes neither early nor late, once it knows the clocks of a majority.
func TestNextPlace_isTheMedianOfTheNodesClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		var timed []*timedClient
		for _, s := range newStages(5) {
			timed = append(timed, &timedClient{stageClient: stageClient{stage: s}})
			nodes = append(nodes, timed[len(timed)-1])
		}
		d, err := NewDriver(nodes)
		require.NoError(t, err)
		d.clock = func() time.Time { return time.Now().Add(time.Hour) }
		ahead := func() time.Duration {
			return time.Until(time.UnixMicro(int64(d.nextPlace() >> 10))).Round(time.Millisecond)
		}
		timed[0].ahead, timed[1].ahead = time.Second, 2*time.Second
		require.Equal(t, time.Hour, ahead(), "two of five are known")
		timed[2].ahead = 48 * time.Hour
		require.Equal(t, 2*time.Second, ahead())
		timed[3].ahead, timed[4].ahead = -48*time.Hour, time.Minute
		require.Equal(t, 2*time.Second, ahead())
		require.NoError(t, d.Close())
	})
}
