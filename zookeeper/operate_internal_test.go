package zookeeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/test/claims"
)

// takenAndForced takes a lock, and ends the hold as an operator does. Before that it calls before.
func takenAndForced(t *testing.T, before func(*backend, *claim)) (*backend, string, *claim) {
	t.Helper()
	d, operator, name := driverOf(t), driverOf(t), claims.Fresh()
	l := take(t, d, name)
	before(d, l)
	shown, err := operator.Inspect(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, operator.ForceRelease(t.Context(), name, shown))
	return d, name, l
}

// An Unlock was sent, and lost on its way; then the hold was ended. Sent again, it does not take
// that for its own doing.
func TestForceRelease_beforeAReleaseThatIsSentAgain(t *testing.T) {
	t.Parallel()
	sentTwice := func(l *lease, _ string) { l.deletes = 1 }
	for name, c := range map[string]struct {
		before func(*testing.T, *claim)
		after  func(l *lease, from string)
	}{
		"sent once":  {},
		"sent twice": {after: sentTwice},
		"and the servers have removed the parent": {after: func(l *lease, _ string) {
			l.deletes = 1
			assert.NoError(t, l.session.conn.Delete(l.parent, -1))
		}},
		"and the reply to a move was lost": {
			func(t *testing.T, l *claim) { require.NoError(t, l.Downgrade(t.Context())) },
			func(l *lease, from string) { l.path, l.deletes = from, 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var from string
			d, name, l := takenAndForced(t, func(_ *backend, l *claim) {
				if from = l.lease.state().path; c.before != nil {
					c.before(t, l)
				}
			})
			if c.after != nil {
				c.after(l.lease, from)
			}
			require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
			require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
			next := take(t, d, name)
			assert.Greater(t, next.Token(), l.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// The data of the node are not ours: they stay.
func TestForceRelease_leavesTheDataOfOthers(t *testing.T) {
	t.Parallel()
	look := direct(t)
	_, _, l := takenAndForced(t, func(_ *backend, l *claim) {
		_, err := look.Set(l.lease.parent, []byte("a note"), -1)
		require.NoError(t, err)
		_, err = look.Create(l.lease.parent+"/keep", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	})
	data, _, err := look.Get(l.lease.parent)
	require.NoError(t, err)
	assert.Equal(t, "a note", string(data))
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
	require.NoError(t, look.Delete(l.lease.parent+"/keep", -1))
}

// The node knows the latest by name. Of those before them an Unlock that is sent again is in doubt;
// one of a later hold is not.
func TestForceRelease_ofManySharesBeforeReleasesThatAreSentAgain(t *testing.T) {
	t.Parallel()
	look, d := direct(t), driverOf(t)
	name := claims.Fresh()
	var all []*claim
	for range forcedKnown + 3 {
		all = append(all, shareOn(t, d, name))
	}
	shown, err := d.Inspect(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, d.ForceRelease(t.Context(), name, shown))
	writer := take(t, d, name)
	for i, l := range all {
		l.lease.deletes = 1
		require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost, i)
	}
	data, _, err := look.Get(writer.lease.parent)
	require.NoError(t, err)
	assert.Len(t, strings.Fields(string(data)), 2+forcedKnown)
	require.NoError(t, look.Delete(writer.lease.state().path, -1)) // as its first release, which was not answered
	writer.lease.deletes = 1
	require.NoError(t, writer.Release(t.Context()))
}

// The holder gives no others the right to delete its node.
func TestForceRelease_withoutTheRightToDelete(t *testing.T) {
	t.Parallel()
	conn, d, name := direct(t), driverOf(t), claims.Fresh()
	l := take(t, d, name)
	shown, err := d.Inspect(t.Context(), name)
	require.NoError(t, err)
	parent := l.lease.parent
	for what, perms := range map[string]int32{"delete": zk.PermAll &^ zk.PermDelete, "write": zk.PermAll &^ zk.PermWrite} {
		_, err = conn.SetACL(parent, zk.WorldACL(perms), -1)
		require.NoError(t, err)
		require.ErrorIs(t, d.ForceRelease(t.Context(), name, shown), zk.ErrNoAuth, what)
		require.NoError(t, l.Extend(t.Context(), longTTL), what)
	}
	_, err = conn.SetACL(parent, zk.WorldACL(zk.PermAll), -1)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
}

func TestList_goesThroughAllNodes(t *testing.T) {
	t.Parallel()
	conn, d := direct(t), driverOf(t)
	prefix := fmt.Sprint("list", time.Now().UnixNano())
	list := func(begins string) (names []string, unnamed, pages int) { return claims.List(t, d, prefix+":"+begins) }
	names, _, _ := list("")
	assert.Empty(t, names, "nobody has used the prefix")
	root := rootOf("", prefix)
	_, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	queue := func(node, child string) {
		_, err := conn.Create(root+"/"+node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		if child != "" {
			_, err = conn.Create(root+"/"+node+"/"+child, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
	}
	contender := fmt.Sprintf("%s%032x%s", nodePrefix, 7, nodeMiddle)
	var want []string
	for i := range 2*nodesPerCheck + 20 {
		name := fmt.Sprint("a/", i)
		want = append(want, prefix+":"+name)
		queue(escape(name), contender)
	}
	queue("released", "")
	queue("a note", "note")
	queue(escape(strings.Repeat("a", sessions.LongName+1)), contender)
	queue("%zz", contender)
	slices.Sort(want)
	names, unnamed, pages := list("")
	assert.Equal(t, want, names)
	assert.Equal(t, 1, unnamed)
	assert.Equal(t, 3, pages)
	names, unnamed, pages = list("a/7")
	assert.Len(t, names, 1+10)
	assert.Equal(t, 1, unnamed, "it may begin so")
	assert.Equal(t, 1, pages)
}
