package etcd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/testserver"
)

// listAll returns what a Driver lists, how many have no names, and how many pages that took.
func listAll(t *testing.T, d *backend, prefix string) (names []string, unnamed, pages int) {
	t.Helper()
	for next := d.List(prefix); ; {
		page, err := next(t.Context())
		require.NoError(t, err)
		pages++
		names, unnamed = append(names, page.Names...), unnamed+page.Unnamed
		if page.Last {
			slices.Sort(names)
			return names, unnamed, pages
		}
	}
}

// Queues are longer than a page, keys of others stand between those of locks, and some names are
// hashes.
func TestList_goesThroughAllKeys(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	prefix := strings.Split(fresh(), ":")[0] + fmt.Sprint(time.Now().UnixNano()) + ":"
	session, err := d.cli.Grant(t.Context(), 60)
	require.NoError(t, err)
	put := func(keys ...string) {
		for some := range slices.Chunk(keys, 100) {
			var ops []clientv3.Op
			for _, key := range some {
				ops = append(ops, clientv3.OpPut(key, "", clientv3.WithLease(session.ID)))
			}
			_, err := d.cli.Txn(t.Context()).Then(ops...).Commit()
			require.NoError(t, err)
		}
	}
	var want, keys []string
	for _, name := range []string{"a", "a/b", "a%", "a0", "b", "c"} {
		want = append(want, prefix+name)
		for range 2*keysPerPage/5 + 1 {
			keys = append(keys, newPlace(prefix+name, sessions.NewOwner()).key)
		}
	}
	long := prefix + strings.Repeat("d", sessions.LongName+1)
	keys = append(keys, newPlace(long, sessions.NewOwner()).key, prefix+"a/note", prefix+"a0", prefix+"d/note", newPlace(prefix+"e", sessions.NewOwner()).tombstone, prefix+"%2f/"+sessions.NewOwner())
	put(keys...)
	slices.Sort(want)
	names, unnamed, pages := listAll(t, d, prefix)
	assert.Equal(t, want, names, "each once")
	assert.Equal(t, 1, unnamed)
	assert.Less(t, pages, 8)
	names, unnamed, _ = listAll(t, d, prefix+"a/")
	assert.Equal(t, []string{prefix + "a/b"}, names)
	assert.Equal(t, 1, unnamed, "it may begin so")
	names, _, _ = listAll(t, d, prefix+"x")
	assert.Empty(t, names)

	// A page ends among keys of others, in a folder that a contender comes later in.
	var notes []string
	for i := range keysPerPage {
		notes = append(notes, fmt.Sprintf("%sn/!%04d", prefix, i))
	}
	put(append(notes, newPlace(prefix+"n", sessions.NewOwner()).key)...)
	names, _, _ = listAll(t, d, prefix+"n")
	assert.Equal(t, []string{prefix + "n"}, names)
	_, err = d.cli.Revoke(t.Context(), session.ID)
	require.NoError(t, err)
}
