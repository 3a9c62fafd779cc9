package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// With the tick that is the default (openURL gives one) a Lock leaves so little that a renewal is due at once. It is not to be
// asked for every twentieth of the TTL for that, nor for a hold that is over in no time.
func TestCounts_withTheDefaultTick(t *testing.T) {
	testwait.OnlyNightly(t, "it takes a minute; TestRenewal_ofALeaseThatCountsFromEarlier shows the same in virtual time")
	t.Parallel()
	const ttl = 16 * time.Second
	s := testserver.SharedZooKeeper(t)
	w := newWire(t, s.Addr())
	c, err := locker.Open(t.Context(), w.url()+"?ttl=16s", locker.WithPrefix(space(t)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	time.Sleep(ttl) // the session has come of age
	w.take()
	time.Sleep(2 * ttl)
	ops, _ := w.take()
	assert.LessOrEqual(t, ops[opMulti], 2*8, "quorum writes for one hold in two TTLs; with a tick of 2 s they are 14")
	require.NoError(t, m.Unlock(t.Context()))
	w.take()
	const locks = 8
	for range locks {
		time.Sleep(ttl / 9)
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, m.Unlock(t.Context()))
	}
	ops, _ = w.take()
	assert.LessOrEqual(t, ops[opMulti], 1, "of %d Locks, each for 20 ms", locks)
}
