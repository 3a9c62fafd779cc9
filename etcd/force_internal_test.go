package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// nameOf returns the name of a lease's lock.
func nameOf(t *testing.T, c *claim) string {
	t.Helper()
	prefix, escaped, _ := strings.Cut(strings.TrimSuffix(c.entry.folder, "/"), ":")
	name, ok := sessions.Unescape(escaped, escape)
	require.True(t, ok)
	return prefix + ":" + name
}

// force ends a hold as an operator does, from another process.
func force(t *testing.T, c *claim) {
	t.Helper()
	operator := driverAt(t, testserver.SharedEtcd(t))
	shown, err := operator.Inspect(t.Context(), nameOf(t, c))
	require.NoError(t, err)
	require.NoError(t, operator.ForceRelease(t.Context(), nameOf(t, c), shown))
	require.ErrorIs(t, operator.ForceRelease(t.Context(), nameOf(t, c), shown), driver.ErrNotHeld)
}

// An Unlock was sent, and lost on its way; then the hold was ended. Sent again, it does not take
// that for its own doing.
func TestForceRelease_beforeAReleaseThatIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*entry){
		"sent once":              func(*entry) {},
		"sent twice":             func(e *entry) { e.releases.Store(1) },
		"sent twice, and doubts": func(e *entry) { e.releases.Store(1); e.doubtful.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := driverAt(t, testserver.SharedEtcd(t))
			c := acquire(t, d, time.Minute)
			e := c.entry
			before(e)
			force(t, c)
			if e.releases.Load() > 0 { // the first has arrived after that, and its reply was lost
				_, err := e.remove(t.Context(), e.created.Load(), e.doubtful.Load())
				require.NoError(t, err)
			}
			require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
			require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
			assert.Equal(t, 1, e.session.tombstones, "the mark counts")
			assert.Empty(t, e.session.owners, "an owner with a mark takes nothing more")
			next, err := claims.Take(t.Context(), d, driver.Request{Name: nameOf(t, c), TTL: time.Minute})
			require.NoError(t, err)
			assert.Greater(t, next.Token(), c.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A request that puts the key, and was given up, arrives after the hold was ended.
func TestForceRelease_beforeATakeThatArrivesLate(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	c := acquire(t, d, time.Minute)
	force(t, c)
	_, err := d.cli.Txn(t.Context()).If(c.entry.alive(), c.entry.absent()).Then(c.entry.put("")).Commit()
	require.NoError(t, err)
	state, err := d.Inspect(t.Context(), nameOf(t, c))
	require.NoError(t, err)
	assert.Equal(t, driver.State{}, state, "it has put nothing")
	require.ErrorIs(t, c.Extend(t.Context(), time.Minute), driver.ErrLost)
	require.NoError(t, d.Close())
	left, err := driverAt(t, testserver.SharedEtcd(t)).cli.Get(t.Context(), strings.TrimSuffix(c.entry.folder, "/"), clientv3.WithPrefix())
	require.NoError(t, err)
	assert.Empty(t, left.Kvs, "with the session goes the mark")
}
