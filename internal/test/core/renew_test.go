package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// gaps are the times between the elements of at.
func gaps(at []time.Duration) (between []time.Duration) {
	for i := range at[1:] {
		between = append(between, at[i+1]-at[i])
	}
	return between
}

func TestRenewal_everyThirdOfTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		time.Sleep(20 * ttl)
		for _, gap := range gaps(append([]time.Duration{0}, b.times(extend)...)) {
			assert.LessOrEqual(t, gap, ttl/3)
			assert.GreaterOrEqual(t, gap, ttl/3-ttl/32-drift)
		}
		assert.GreaterOrEqual(t, len(b.calls(extend)), 60)
		assert.EqualValues(t, 1, m.FencingToken())
		assert.EqualValues(t, 1, b.holder("x"))
		assert.Greater(t, time.Until(m.Hold().Deadline()), ttl/2)
	})
}

// Counted as the lease is, from when the one before was sent; an answer after half a TTL is
// followed at once.
func TestRenewal_isNotDelayedByASlowReply(t *testing.T) {
	type slow struct {
		o    op
		f    fault
		call bool // to Extend
	}
	each(t, map[string]slow{
		"of the grant":  {acquire, fault{reply: ttl/2 - drift}, false},
		"of an Extend":  {extend, fault{reply: ttl / 2 * 9 / 10}, true},
		"of a renewal":  {extend, fault{reply: ttl / 6 * 9 / 10}, false},
		"of no request": {acquire, fault{}, false},
	}, func(t *testing.T, b *backend, c slow) {
		b.next(c.o, c.f)
		m := b.locked(t)
		if c.call {
			require.NoError(t, m.Extend(t.Context()))
		}
		time.Sleep(3 * ttl)
		for _, gap := range gaps(append(b.times(acquire), b.times(extend)...)) {
			assert.LessOrEqual(t, gap, ttl/2+ttl/24)
		}
	})
}

func TestRenewal_thatIsAnsweredLateCounts(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(extend, fault{reply: ttl / 2})
		m := b.locked(t)
		time.Sleep(5 * ttl)
		assert.NotZero(t, m.FencingToken())
	})
}

func TestRenewal_thatFailsIsSentAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		b.next(extend, unreachable, unheard, unreachable)
		time.Sleep(ttl / 2)
		at := b.times(extend)
		require.Len(t, at, 4)
		for _, gap := range gaps(at) {
			assert.Equal(t, ttl/24, gap)
		}
		assert.Equal(t, at[3]+life, m.Hold().Deadline().Sub(b.start))
	})
}

// holdMany has c take n locks, and returns them.
func holdMany(t *testing.T, c *locker.Client, n int) (ms []*locker.Mutex) {
	for i := range n {
		m := c.Mutex(fmt.Sprint(i))
		require.NoError(t, m.Lock(t.Context()))
		ms = append(ms, m)
	}
	return ms
}

func TestRenewal_ofManyHoldsIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(acquire, fault{reply: time.Millisecond}) // they are taken within a short time
		ms := holdMany(t, clientOf(t, &batcher{fakeDriver: &fakeDriver{b: b}}), 100)
		time.Sleep(ttl)
		assert.Empty(t, b.calls(extend), "none is renewed by itself")
		sent := b.times(batch)
		assert.Contains(t, []int{3, 4}, len(sent))
		for _, c := range b.calls(batch) {
			assert.Equal(t, 100, c.holds)
		}
		for _, m := range ms {
			require.Equal(t, sent[len(sent)-1]+life, m.Hold().Deadline().Sub(b.start))
		}
	})
}

func TestRenewal_ofManyHoldsLosesThoseAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ms := holdMany(t, clientOf(t, &batcher{fakeDriver: &fakeDriver{b: b}}), 5)
		b.steal("3")
		time.Sleep(ttl / 3)
		synctest.Wait()
		for i, m := range ms {
			assert.Equal(t, i == 3, fired(m.Hold().Lost()), "lock %d", i)
		}
		time.Sleep(2 * ttl)
		assert.Equal(t, 4, b.calls(batch)[1].holds)
		assert.NotZero(t, ms[4].FencingToken())
	})
}

func TestRenewal_whoseAnswersAreMissingIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ms := holdMany(t, clientOf(t, &batcher{fakeDriver: &fakeDriver{b: b}, short: true}), 5)
		for _, m := range ms {
			<-m.Hold().Lost()
		}
		assert.Equal(t, life, time.Since(b.start), "nobody knows whose answers they were")
	})
}

func TestRenewal_ofHoldsWithTheirOwnTTLs(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, &batcher{fakeDriver: &fakeDriver{b: b}})
		var ms []*locker.Mutex
		for i, lifetime := range []time.Duration{time.Second, time.Second, time.Minute, time.Minute} {
			m := c.Mutex(fmt.Sprint(i), locker.WithTTL(lifetime))
			require.NoError(t, m.Lock(t.Context()))
			ms = append(ms, m)
		}
		time.Sleep(time.Hour)
		for _, m := range ms {
			assert.NotZero(t, m.FencingToken())
		}
	})
}

// Each lock may live on a server of its own, as in a cluster.
func TestRenewal_ofOthersDoesNotWaitForThoseThatHang(t *testing.T) {
	each(t, hanging, func(t *testing.T, b *backend, f fault) {
		ms := holdMany(t, b.client(t), 200)
		for i := range ms {
			if i%2 == 0 {
				b.everyOf(fmt.Sprint(i), extend, f)
			}
		}
		time.Sleep(2 * ttl)
		lost := 0
		for i, m := range ms {
			if i%2 == 1 && m.FencingToken() == 0 {
				lost++
			}
		}
		assert.Zero(t, lost, "of 100 whose own requests are answered")
	})
}

// On a session that several holds share a grant or a renewal may count from a while before it was
// asked for. To ask again at once brings little then.
func TestRenewal_ofALeaseThatCountsFromEarlier(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(acquire, fault{age: ttl * 3 / 8})
		b.every(extend, fault{age: ttl * 3 / 8})
		m := b.locked(t)
		time.Sleep(3 * ttl)
		assert.NotZero(t, m.FencingToken(), "it is held all the time")
		asked := len(b.times(extend))
		assert.LessOrEqual(t, asked, 3*8, "renewals in three TTLs")
		assert.GreaterOrEqual(t, asked, 3*3)
	})
}

// What docs/limits.md has people size TTLs by: whatever keeps the backend from being reached for
// two fifths of a TTL costs no hold, at whatever moment between two renewals it begins. At the
// worst a sixth of the TTL is left.
func TestRenewal_outlivesAnOutageOfTwoFifthsOfTheTTLWheneverItBegins(t *testing.T) {
	const steps = 20
	for i := range steps {
		each(t, map[string]fault{
			"refuses": unreachable, "hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "does it, but every reply is lost": unheard,
		}, func(t *testing.T, b *backend, f fault) {
			m := b.locked(t)
			token := m.FencingToken()
			time.Sleep(ttl + ttl/3*time.Duration(i)/steps)
			b.down(f)
			least := ttl
			for over := time.Now().Add(2 * ttl); time.Now().Before(over); time.Sleep(ttl / 100) {
				if time.Until(over) <= 2*ttl-2*ttl/5 {
					b.down(fault{})
				}
				least = min(least, time.Until(m.Hold().Deadline()))
				require.Equal(t, token, m.FencingToken())
			}
			assert.GreaterOrEqual(t, least, ttl/6)
		})
	}
}
