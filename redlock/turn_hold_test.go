package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// A node that grants after the majority has, and before the claim is asked, joins the hold: another may have come and gone there.
func TestTurn_aNodeThatJoinsBeforeTheClaimIsAskedHasJoined(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.edit("x", ownedForLong)
		}
		req, woken := askFor("x"), 0
		req.TTL = time.Minute
		req.Wake = func() { woken++ }
		l := d.Claim(req).(*claim)
		_, err := l.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		for _, s := range stages {
			s.edit("x", freed)
			time.Sleep(5 * time.Second) // nobody asks meanwhile
		}
		assert.Positive(t, woken)
		joined := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.nodes[2].lease != nil && l.nodes[2].joined
		}
		require.True(t, joined())
		_, err = l.Ask(t.Context())
		require.NoError(t, err)
		assert.True(t, joined())
		require.NoError(t, l.Release(t.Context()))
	})
}

// Of a hold that was abandoned nobody gives back the places.
func TestTurn_ofAHoldThatHasExpiredIsGivenUp(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		stages[4].edit("x", ownedForLong)
		w := wait(t, d)
		require.NoError(t, w.err)
		stages[4].edit("x", func(r *register) { require.Len(t, r.queue, 1) })
		time.Sleep(ttl + 2*time.Second)
		stages[4].edit("x", func(r *register) { assert.Empty(t, r.queue) })
	})
}

// A place in a queue is not the lock: that it is given up confirms no hold, also while its node is
// asked.
func TestRelease_doesNotCountANodeThatOnlyHadAPlace(t *testing.T) {
	for _, asked := range []bool{false, true} {
		play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
			for _, s := range stages[3:] {
				s.edit("x", ownedForLong)
			}
			w := wait(t, d)
			require.NoError(t, w.err)
			if asked {
				const back = 100 * time.Millisecond
				stages[3].only(propose, path{back: back})
				time.Sleep(time.Second + back/2) // it looks
			}
			stages[2].always(path{err: errRefused})
			var e *Error
			require.ErrorAs(t, w.lease.Release(t.Context()), &e, "two of five confirm that they had it until now")
			stages[2].on(nil)
			time.Sleep(2 * time.Second)
			for i, s := range stages {
				s.edit("x", func(r *register) { assert.Empty(t, r.queue, "node %d", i) })
			}
			assert.False(t, stages[2].has("x"))
		})
	}
}
