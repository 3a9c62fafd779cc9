package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

const shareTTL = 30 * time.Second

func shareOn(t *testing.T, d *Driver, name string) *claim {
	t.Helper()
	l, err := claims.Share(t.Context(), d, driver.Request{Name: name, TTL: shareTTL})
	require.NoError(t, err)
	return l.(*claim)
}

// The servers have removed the node of the lock with all that was in it, and numbers begin anew.
func TestRelease_ofALostShareLeavesThatOfTheSameNumberAlone(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedZooKeeper(t).Addr()
	d, other := driverOn(t, connAt(t, shareTTL, addr)), driverOn(t, connAt(t, shareTTL, addr))
	name := fresh()
	lost := shareOn(t, d, name)
	require.NoError(t, d.conn.Delete(lost.lease.at(), -1))
	require.NoError(t, d.conn.Delete(lost.lease.parent, -1))
	l := shareOn(t, other, name)
	was, _ := parseContender(lost.lease.at()[len(lost.lease.parent)+1:])
	is, _ := parseContender(l.lease.at()[len(l.lease.parent)+1:])
	require.Equal(t, was.number, is.number)
	require.ErrorIs(t, lost.Extend(t.Context(), shareTTL), driver.ErrLost)
	require.ErrorIs(t, lost.Release(t.Context()), driver.ErrLost)
	require.NoError(t, l.Extend(t.Context(), shareTTL), "it is another's")
	require.NoError(t, l.Release(t.Context()))
}

// The answer to a move was lost. Whatever is asked for next finds the node where it is.
func TestMove_whoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedZooKeeper(t).Addr()
	for what, then := range map[string]func(*testing.T, *claim){
		"Downgrade": func(t *testing.T, l *claim) { require.NoError(t, l.Downgrade(t.Context())) },
		"Extend":    func(t *testing.T, l *claim) { require.NoError(t, l.Extend(t.Context(), shareTTL)) },
		"Release":   func(*testing.T, *claim) {},
	} {
		t.Run(what, func(t *testing.T) {
			d := driverOn(t, connAt(t, shareTTL, addr))
			got, err := claims.Take(t.Context(), d, driver.Request{Name: fresh(), TTL: shareTTL})
			require.NoError(t, err)
			l := got.(*claim)
			from := l.lease.at()
			require.NoError(t, l.Downgrade(t.Context()))
			l.lease.path = from // as if no answer had come
			then(t, l)
			require.NoError(t, l.Release(t.Context()))
			children, _, err := d.conn.Children(l.lease.parent)
			require.True(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
			assert.Empty(t, children)
		})
	}
}

// A hold that has lasted for a while hears that its node is gone, and not that a Downgrade has
// moved it.
func TestWatch_followsAMove(t *testing.T) {
	t.Parallel()
	conn, events, err := zk.Connect([]string{testserver.SharedZooKeeper(t).Addr()}, shareTTL, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	d, err := NewDriver(conn, events, Tick(100*time.Millisecond))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	got, err := claims.Take(t.Context(), d, driver.Request{Name: fresh(), TTL: shareTTL})
	require.NoError(t, err)
	l := got.(*claim)
	lost := make(chan struct{})
	l.NotifyLost(func() { close(lost) })
	watched := func() bool {
		l.lease.session.mu.Lock()
		defer l.lease.session.mu.Unlock()
		w := l.lease.session.watches[l.lease.at()]
		return l.lease.session.holds[l.lease.at()] == l.lease && w != nil && w.events != nil && !fired(w.events)
	}
	waitFor(t, "it is watched", watched)
	require.NoError(t, l.Downgrade(t.Context()))
	waitFor(t, "it is watched where it is now", watched)
	select {
	case <-lost:
		t.Fatal("it is there")
	default:
	}
	require.NoError(t, conn.Delete(l.lease.at(), -1))
	<-lost
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
	assert.Empty(t, l.lease.session.holds)
}

// The same, and then the hold was ended by force. An Unlock that is sent twice does not take that for its own doing.
func TestForceRelease_ofANodeWhoseMoveWasNotAnswered(t *testing.T) {
	t.Parallel()
	var from string
	_, _, l := takenAndForced(t, func(_ *Driver, l *claim) {
		from = l.lease.at()
		require.NoError(t, l.Downgrade(t.Context()))
	})
	l.lease.path, l.lease.asked = from, 1
	require.ErrorIs(t, l.Release(t.Context()), driver.ErrLost)
}

// A share writes to the node of the lock. Where that is not allowed it says so, and a plain lock needs no such right.
func TestShare_takesTheRightToWriteToTheNode(t *testing.T) {
	t.Parallel()
	conn := connAt(t, shareTTL, testserver.SharedZooKeeper(t).Addr())
	d, err := NewDriver(conn, nil, Tick(100*time.Millisecond), ACL(zk.WorldACL(zk.PermAll&^zk.PermWrite)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	req := driver.Request{Name: fresh(), TTL: shareTTL}
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
