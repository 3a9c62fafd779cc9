package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// However long a TTL is: what failed is soon tried again, and a server that has stopped is soon left.
func TestLongTTL_doesNotMakeAnybodyWait(t *testing.T) {
	const ttl = 24 * time.Hour
	d := newDriver()
	defer func() { _ = d.Close() }()
	o, failures := d.outage(ttl, unheard), 3
	began := time.Now()
	require.NoError(t, o.Ask(t.Context(), func(context.Context) error {
		if failures--; failures > 0 {
			return zk.ErrConnectionClosed
		}
		return nil
	}))
	assert.Less(t, time.Since(began), 3*time.Second)

	l := newSession(d, ttl, false).life
	now := time.Now()
	for range 1000 {
		now = now.Add(4 * time.Second)
		l.contact(now, now)
		require.Equal(t, now, l.youngest(), "else the next would be due at once")
	}
	assert.Less(t, len(l.young), 10)
}
