package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// small is a quota that fill fills.
const small = "--quota-backend-bytes=1048576"

// fill has the server run out of space.
func fill(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	filler := string(make([]byte, 100<<10))
	eventually(t, "the server is full", func() bool {
		_, err := cli.Put(t.Context(), "filler", filler)
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
}

// unfill undoes fill.
func unfill(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	_, err := cli.Compact(t.Context(), revisionNow(t, cli), clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = cli.Defragment(t.Context(), cli.Endpoints()[0])
	require.NoError(t, err)
	_, err = cli.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
}

// The server has run out of space. What is held goes on and can be given back, waiters get their
// turn, and nothing can be taken.
func TestNoSpace_holdsGoOnAndNothingIsTaken(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdArgs(small))
	direct := connect(t, s.Addr())
	c := newClient(t, s.Addr(), locker.WithTTL(10*time.Second))
	held, x, nextX := c.Mutex("held"), c.Mutex("x"), c.Mutex("x")
	require.NoError(t, held.Lock(t.Context()))
	require.NoError(t, x.Lock(t.Context()))
	waiting := async(func() error { return nextX.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, direct, "x")) == 2 })
	fill(t, direct)
	err := c.Mutex("y").TryLock(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, c.Mutex("z").Lock(t.Context()), rpctypes.ErrNoSpace)
	require.NoError(t, held.Extend(t.Context()))
	require.NoError(t, x.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	require.NoError(t, nextX.Unlock(t.Context()))
	require.NoError(t, held.Unlock(t.Context()))

	unfill(t, direct)
	y := c.Mutex("y")
	require.NoError(t, y.Lock(withTimeout(t, patient)))
	require.NoError(t, y.Unlock(t.Context()))
	eventually(t, "nobody stands in a queue", func() bool {
		return len(queue(t, direct, "x"))+len(queue(t, direct, "y"))+len(queue(t, direct, "z")) == 0
	})
}

// The holder's take was in doubt, so that its release would leave a mark, for which there is no
// space. It gives way all the same.
func TestNoSpace_aHolderInDoubtGivesWay(t *testing.T) {
	t.Parallel()
	f := newFaultyAt(t, testserver.Etcd(t, testserver.EtcdArgs(small)), 30*time.Second)
	next, req := f.other.Mutex("x"), driver.Request{Name: space(t) + ":x", TTL: 30 * time.Second}
	d := driverOf(t, connect(t, f.proxy.Addr()))
	warm, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	require.NoError(t, warm.Release(t.Context()))
	holder := d.Claim(req)
	f.proxy.DropReplies(true)
	_, err = holder.Ask(withTimeout(t, 300*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	eventually(t, "the server has applied the take", func() bool { return len(queue(t, f.direct, "x")) == 1 })
	f.proxy.DropReplies(false)
	f.proxy.ResetConns()
	eventually(t, "it finds its key", func() bool {
		_, err := holder.Ask(t.Context())
		require.NotErrorIs(t, err, locker.ErrHeld)
		return err == nil
	})
	require.Len(t, queue(t, f.direct, "x"), 1)
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool { return len(queue(t, f.direct, "x")) == 2 })
	fill(t, f.direct)
	require.ErrorIs(t, holder.Release(t.Context()), rpctypes.ErrNoSpace)
	select {
	case err := <-waiting:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Fatal("the key is still there")
	}
	require.NoError(t, next.Unlock(t.Context()))
	unfill(t, f.direct)
	eventually(t, "there is the mark", func() bool { return holder.Release(t.Context()) == nil && len(keys(t, f.direct, dead(t, "x"))) == 1 })
}

// The answer to a renewal is late. What is locked after it, on the same session, lasts for a TTL
// from when the renewal was sent. After a second the renewal is sent again, which a busy machine
// may be slow enough for.
func TestDeadline_countsFromWhenTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	const ttl, late = 30 * time.Second, 600 * time.Millisecond // more than the allowance for clocks
	f := newFaulty(t, ttl)
	m, next := f.client.Mutex("x"), f.client.Mutex("y")
	require.NoError(t, m.Lock(t.Context()))
	eventually(t, "it counts from before the answer", func() bool {
		f.proxy.HoldReplies(true)
		extended := async(func() error { return m.Extend(t.Context()) })
		eventually(t, "the renewal is answered", func() bool { _, replies := f.proxy.Held(); return replies > 0 })
		sent := time.Now() // or earlier
		time.Sleep(late)
		f.proxy.ReleaseReplies()
		require.NoError(t, await(t, extended))
		require.NoError(t, next.Lock(t.Context()))
		deadline := next.Hold().Deadline()
		require.NoError(t, next.Unlock(t.Context()))
		return deadline.Before(sent.Add(ttl))
	})
	require.NoError(t, m.Unlock(t.Context()))
}
