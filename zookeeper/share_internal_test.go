package zookeeper

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

func shareOn(t *testing.T, d *backend, name string) *claim {
	t.Helper()
	l, err := claims.Share(t.Context(), d, driver.Request{Name: name, TTL: longTTL})
	require.NoError(t, err)
	return l.(*claim)
}

// The servers have removed the node of the lock with all that was in it, and numbers begin anew.
func TestRelease_ofALostShareLeavesThatOfTheSameNumberAlone(t *testing.T) {
	t.Parallel()
	look, d, other := direct(t), driverOf(t), driverOf(t)
	name := claims.Fresh()
	lost := shareOn(t, d, name)
	require.NoError(t, look.Delete(lost.lease.state().path, -1))
	require.NoError(t, look.Delete(lost.lease.parent, -1))
	l := shareOn(t, other, name)
	was, _ := parseContender(lost.lease.state().path[len(lost.lease.parent)+1:])
	is, _ := parseContender(l.lease.state().path[len(l.lease.parent)+1:])
	require.Equal(t, was.number, is.number)
	require.ErrorIs(t, lost.Extend(t.Context(), longTTL), driver.ErrLost)
	require.ErrorIs(t, lost.Release(t.Context()), driver.ErrLost)
	require.NoError(t, l.Extend(t.Context(), longTTL), "it is another's")
	require.NoError(t, l.Release(t.Context()))
}

// The answer to a move was lost. Whatever is asked for next finds the node where it is.
func TestMove_whoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	look := direct(t)
	for what, then := range map[string]func(*testing.T, *claim){
		"Downgrade": func(t *testing.T, l *claim) { require.NoError(t, l.Downgrade(t.Context())) },
		"Extend":    func(t *testing.T, l *claim) { require.NoError(t, l.Extend(t.Context(), longTTL)) },
		"Release":   func(*testing.T, *claim) {},
	} {
		t.Run(what, func(t *testing.T) {
			d := driverOf(t)
			l := take(t, d, claims.Fresh())
			from := l.lease.state().path
			require.NoError(t, l.Downgrade(t.Context()))
			l.lease.path = from // as if no answer had come
			then(t, l)
			require.NoError(t, l.Release(t.Context()))
			children, _, err := look.Children(l.lease.parent)
			require.True(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
			assert.Empty(t, children)
		})
	}
}

// The reply to the beginning of a phase was lost, and the next server is behind: there the share
// still waits, and the queue has a later change than in the first read. The share finds its node
// all the same.
func TestMove_whoseAnswerWasLostBeforeAnOldRead(t *testing.T) {
	t.Parallel()
	look := direct(t)
	for what, then := range map[string]func(*lease, *queueView) error{
		"Ask": func(l *lease, old *queueView) error {
			_, err := l.settleToken(t.Context(), old, "")
			return err
		},
		"Release": func(l *lease, old *queueView) error {
			require.ErrorIs(t, l.beginPhase(t.Context(), old), zk.ErrBadVersion)
			return nil
		},
	} {
		c := shareOn(t, driverOf(t), claims.Fresh())
		l, was := c.lease, c.lease.state()
		own, _ := parseContender(path.Base(was.path))
		l.path, l.token = fmt.Sprintf("%s%010d", l.node, own.number), 0
		old := &queueView{view: view{pzxid: int64(was.token) + 1}, over: make(chan struct{})}
		require.NoError(t, then(l, old), what)
		if what == "Ask" {
			assert.Equal(t, was.token, l.state().token)
		}
		require.NoError(t, c.Release(t.Context()), what)
		there, _, err := look.Exists(was.path)
		require.NoError(t, err)
		assert.False(t, there, what)
	}
}

// A delete that was sent before the move is no reason to take the node's end for that of a release.
func TestMove_afterADeleteThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	look, l := direct(t), shareOn(t, driverOf(t), claims.Fresh())
	now := l.lease.state()
	l.lease.path, l.lease.to, l.lease.deletes = now.path+"-before", []string{now.path}, 1
	moved, err := l.lease.moved(t.Context(), now.path+"-before")
	require.NoError(t, err)
	require.True(t, moved)
	require.NoError(t, look.Delete(now.path, -1))
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
}

// Two have read the same queue, and one of another session has read it later, before anybody has begun
// a phase: one begins, and the others take its token.
func TestAgree_ofThoseWhoHaveReadBeforeAPhase(t *testing.T) {
	t.Parallel()
	d, other := driverOf(t), driverOf(t)
	req := driver.Request{Name: claims.Fresh(), TTL: longTTL, Shared: true, Wake: func() {}}
	left := shareOn(t, d, req.Name)
	gone := path.Base(left.lease.state().path)
	require.NoError(t, left.Release(t.Context()), "there is a node of the lock")
	waiting := func(d *backend) *lease {
		c := d.Claim(req).(*claim)
		require.NoError(t, c.join(t.Context()))
		_, err := c.lease.create(t.Context())
		require.NoError(t, err)
		_, err = c.lease.resolve(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.lease.finish(false) })
		return c.lease
	}
	look := func(l *lease) *queueView {
		v, before, err := l.look(t.Context())
		require.NoError(t, err)
		require.Empty(t, before)
		return v
	}
	first, second := waiting(d), waiting(d)
	early := look(first)
	third := waiting(other)
	late := look(third)
	require.Greater(t, late.pzxid, early.pzxid)
	var both sync.WaitGroup
	for _, l := range []*lease{first, second} {
		both.Go(func() {
			_, err := l.settleToken(t.Context(), early, "")
			assert.NoError(t, err)
		})
	}
	both.Wait()
	third.witness = gone // it has left since it was read
	_, err := third.settleToken(t.Context(), late, "")
	require.NoError(t, err)
	for _, l := range []*lease{first, second, third} {
		assert.EqualValues(t, early.pzxid, l.state().token)
	}
}

// A hold that has lasted for a while hears that its node is gone, and not that a Downgrade has
// moved it.
func TestWatch_followsAMove(t *testing.T) {
	t.Parallel()
	conn, d := direct(t), driverOf(t)
	l := take(t, d, claims.Fresh())
	lost := make(chan struct{})
	l.NotifyLost(func() { close(lost) })
	watched := func() bool {
		w := &l.lease.session.watches
		w.mu.Lock()
		defer w.mu.Unlock()
		at := l.lease.state().path
		return l.lease.awaits.node == at && w.nodes[at] != nil && w.nodes[at].set
	}
	waitFor(t, "it is watched", watched)
	require.NoError(t, l.Downgrade(t.Context()))
	waitFor(t, "it is watched where it is now", watched)
	select {
	case <-lost:
		t.Fatal("it is there")
	default:
	}
	require.NoError(t, conn.Delete(l.lease.state().path, -1))
	<-lost
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
	assert.Empty(t, l.lease.session.watches.awaited(l.lease))
}

// A share writes to the node of the lock. Where that is not allowed it says so, and a plain lock
// needs no such right.
func TestShare_takesTheRightToWriteToTheNode(t *testing.T) {
	t.Parallel()
	d := driverOf(t, ACL(zk.WorldACL(zk.PermAll&^zk.PermWrite)))
	req := driver.Request{Name: claims.Fresh(), TTL: longTTL}
	l, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	l, err = claims.Share(t.Context(), d, req)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NotErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, l.Release(t.Context()))
	l, err = claims.Take(t.Context(), d, req)
	require.NoError(t, err, "nothing is left")
	require.NoError(t, l.(driver.Downgrader).Downgrade(t.Context()), "it writes to its own place alone")
	require.NoError(t, l.Release(t.Context()))
}
