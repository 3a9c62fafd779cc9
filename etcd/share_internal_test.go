package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
	"github.com/go-locker/locker/internal/test/testserver"
)

// standShared puts a share into the queue of a name, whose token is not settled.
func standShared(t *testing.T, d *Driver, name string, o *outage.Outage) *lease {
	t.Helper()
	l, err := d.contend(t.Context(), driver.Request{Name: name, TTL: o.TTL}, o)
	require.NoError(t, err)
	_, err = l.enqueueShared(t.Context(), o)
	require.NoError(t, err)
	require.False(t, l.settled())
	return l
}

func settleAlone(t *testing.T, l *lease, o *outage.Outage) {
	t.Helper()
	ahead, err := l.settle(t.Context(), o, l.key)
	require.NoError(t, err)
	require.Empty(t, ahead)
}

// Shares that came early, and are slow to settle, get no token below that of a share which came later and has ended.
func TestSettle_tokensDoNotFallWhenTheOldestAreSlow(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name, o := fresh(), d.newOutage(time.Minute, unheard)
	holder, _ := stand(t, d, name, o)
	oldest, slow := standShared(t, d, name, o), standShared(t, d, name, o)
	gaveUp, _ := stand(t, d, name, o)
	late := standShared(t, d, name, o)
	ahead, err := late.settle(t.Context(), o, late.key)
	require.NoError(t, err)
	require.Equal(t, gaveUp.key, ahead, "it has seen a writer before it")
	require.NoError(t, holder.Release(t.Context()))
	require.NoError(t, gaveUp.Release(t.Context()))
	settleAlone(t, late, o)
	require.Greater(t, late.Token(), holder.Token())
	require.NoError(t, late.Release(t.Context()))
	require.NoError(t, oldest.Release(t.Context()))

	next := standShared(t, d, name, o)
	settleAlone(t, next, o)
	assert.GreaterOrEqual(t, next.Token(), late.Token(), "a resource has seen that of the one before")
	settleAlone(t, slow, o)
	assert.Equal(t, next.Token(), slow.Token())
	require.NoError(t, slow.Release(t.Context()))
	require.NoError(t, next.Release(t.Context()))
}

// A hint may be old: it counts for nothing when its share has ended, and its owner may have come back.
func TestHint_ofAShareThatHasEndedCountsForNothing(t *testing.T) {
	t.Parallel()
	d, other := driverAt(t, testserver.SharedEtcd(t)), driverAt(t, testserver.SharedEtcd(t)) // a session knows of its own shares
	req := driver.Request{Name: fresh(), TTL: time.Minute}
	first, err := d.AcquireShared(t.Context(), req)
	require.NoError(t, err)
	at := first.(*lease)
	hint, err := d.cli.Get(t.Context(), at.hint())
	require.NoError(t, err)
	require.Len(t, hint.Kvs, 1, "others find the token at the first")
	old := at.hintValue(formatToken(at.revision()), formatToken(at.revision()))
	require.NoError(t, first.Release(t.Context()))
	hint, err = d.cli.Get(t.Context(), at.hint())
	require.NoError(t, err)
	require.Empty(t, hint.Kvs, "it has gone with its share")
	writer, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, writer.Release(t.Context()))

	_, err = d.cli.Put(t.Context(), at.hint(), old)
	require.NoError(t, err)
	back, err := d.AcquireShared(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, at.key, back.(*lease).key)
	assert.Greater(t, back.Token(), writer.Token())
	_, err = d.cli.Put(t.Context(), at.hint(), old)
	require.NoError(t, err)
	beside, err := other.AcquireShared(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, back.Token(), beside.Token())
	require.NoError(t, beside.Release(t.Context()))
	for _, junk := range []string{"", "x", "x\x00y\x00z", "\x00\x001\x002\x003"} {
		_, err = d.cli.Put(t.Context(), at.hint(), junk)
		require.NoError(t, err)
		l, err := other.AcquireShared(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, back.Token(), l.Token(), "%q", junk)
		require.NoError(t, l.Release(t.Context()))
	}
	require.NoError(t, back.Release(t.Context()))
}

// Who settles the token of another's share leaves it on the other's session.
func TestSettle_leavesASharesSession(t *testing.T) {
	t.Parallel()
	d, other := driverAt(t, testserver.SharedEtcd(t)), driverAt(t, testserver.SharedEtcd(t))
	name, o := fresh(), d.newOutage(time.Minute, unheard)
	holder, _ := stand(t, d, name, o)
	slow, l := standShared(t, other, name, other.newOutage(time.Minute, unheard)), standShared(t, d, name, o)
	require.NoError(t, holder.Release(t.Context()))
	settleAlone(t, l, o)
	found, err := d.cli.Get(t.Context(), slow.key)
	require.NoError(t, err)
	require.Len(t, found.Kvs, 1)
	assert.Equal(t, int64(l.Token()), parseValue(found.Kvs[0]).token)
	assert.Equal(t, slow.session.id, clientv3.LeaseID(found.Kvs[0].Lease))
	require.NoError(t, other.Close())
	found, err = d.cli.Get(t.Context(), slow.key)
	require.NoError(t, err)
	assert.Empty(t, found.Kvs)
	require.NoError(t, l.Release(t.Context()))
}

// One that waits until another has read all shares heeds its ctx, and leaves nothing.
func TestHint_whoWaitsToLookHeedsItsContext(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: fresh(), TTL: time.Minute}
	first, err := d.AcquireShared(t.Context(), req)
	require.NoError(t, err)
	at, other := first.(*lease), driverAt(t, testserver.SharedEtcd(t))
	_, err = d.cli.Delete(t.Context(), at.hint())
	require.NoError(t, err)
	looking := acquire(t, other, req.TTL).session.looking
	looking <- struct{}{} // another looks, and is not done
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	gaveUp, err := other.AcquireShared(ctx, req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotNil(t, gaveUp, "its key is there")
	require.NoError(t, gaveUp.Release(t.Context()))
	<-looking
	next, err := other.AcquireShared(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, first.Token(), next.Token())
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, first.Release(t.Context()))
	left, err := d.cli.Get(t.Context(), at.folder, clientv3.WithPrefix())
	require.NoError(t, err)
	assert.Empty(t, left.Kvs)
}
