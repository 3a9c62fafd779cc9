package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// standShared puts a share into the queue of a name, whose token is not settled.
func standShared(t *testing.T, d *backend, name string) *claim {
	t.Helper()
	c := d.Claim(driver.Request{Name: name, TTL: time.Minute, Shared: true, Wake: func() {}}).(*claim)
	require.NoError(t, c.join(t.Context()))
	e := c.entry
	_, err := e.take(t.Context(), []clientv3.Cmp{e.absent()}, []clientv3.Op{e.putShare("")}, nil)
	require.NoError(t, err)
	require.Zero(t, e.token.Load())
	return c
}

// reading is a KV that notes the ranges which the server reads for a transaction, in order, until a
// condition is false. Before that it calls before, which may be nil.
type reading struct {
	clientv3.KV

	before func()
	ranges [][2]string
}

func (r *reading) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if r.before != nil {
		r.before()
	}
	if op.IsTxn() {
		r.note(ctx, op)
	}
	return r.KV.Do(ctx, op)
}

func (r *reading) note(ctx context.Context, op clientv3.Op) {
	conditions, then, otherwise := op.Txn()
	branch := then
	for _, c := range conditions {
		r.ranges = append(r.ranges, [2]string{string(c.GetCompare().Key), string(c.GetCompare().RangeEnd)})
		if holds, err := r.KV.Txn(ctx).If(c).Commit(); err != nil || !holds.Succeeded {
			branch = otherwise
			break
		}
	}
	for _, op := range branch {
		if op.IsTxn() {
			r.note(ctx, op)
		} else if op.IsGet() {
			r.ranges = append(r.ranges, [2]string{string(op.KeyBytes()), string(op.RangeBytes())})
		}
	}
}

// However many shares there are, the server reads none of them for one that waits behind a writer.
func TestEnterShared_behindAWriterReadsNoShares(t *testing.T) {
	t.Parallel()
	d, name := driverAt(t, testserver.SharedEtcd(t)), claims.Fresh()
	writer, _ := stand(t, d, name)
	r := &reading{KV: d.kv}
	d.kv = r
	share := d.Claim(driver.Request{Name: name, TTL: time.Minute, Shared: true, Wake: func() {}}).(*claim)
	require.NoError(t, share.join(t.Context()))
	ahead, err := share.entry.enqueue(t.Context(), true)
	require.NoError(t, err)
	assert.Equal(t, writer.entry.key, ahead)
	require.NotEmpty(t, r.ranges)
	folder := share.entry.folder
	assert.NotContains(t, r.ranges, [2]string{folder, clientv3.GetPrefixRangeEnd(folder)})
	assert.Contains(t, r.ranges, [2]string{folder, folder + readerMark}, "it reads the writers")
}

// A TryLock in vain has the server read the whole queue once for each holder, not each time.
func TestEnter_aTryThatKnowsTheHolderReadsNoQueue(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	d, name := driverAt(t, s), claims.Fresh()
	holder, _ := stand(t, d, name)
	next, _ := stand(t, d, name)
	tries := driverAt(t, s)
	r := &reading{KV: tries.kv}
	tries.kv = r
	try := func() (err error, all int) {
		r.ranges = nil
		c := tries.Claim(driver.Request{Name: name, TTL: time.Minute})
		_, err = c.Ask(t.Context())
		for _, read := range r.ranges {
			if read[1] != "" {
				all++
			}
		}
		if err == nil {
			require.NoError(t, c.Release(t.Context()))
		}
		return err, all
	}
	for _, stands := range []*claim{holder, next} {
		for i, want := range []int{2, 0, 0} {
			err, all := try()
			held, ok := errors.AsType[*driver.HeldError](err)
			require.True(t, ok, err)
			assert.Equal(t, stands.entry.key[len(stands.entry.folder):], held.Holder.ID)
			assert.Equal(t, want, all, "ranges that try %d reads", i)
		}
		require.NoError(t, stands.Release(t.Context()))
	}
	err, _ := try()
	require.NoError(t, err)
}

func settleAlone(t *testing.T, c *claim) {
	t.Helper()
	ahead, err := c.entry.readPredecessor(t.Context(), c.entry.ahead)
	require.NoError(t, err)
	require.Empty(t, ahead)
}

// Shares that came early, and are slow to settle, get no token below that of a share which came
// later and has ended.
func TestSettle_tokensDoNotFallWhenTheOldestAreSlow(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	name := claims.Fresh()
	holder, _ := stand(t, d, name)
	oldest, slow := standShared(t, d, name), standShared(t, d, name)
	gaveUp, _ := stand(t, d, name)
	late := standShared(t, d, name)
	ahead, err := late.entry.readPredecessor(t.Context(), late.entry.ahead)
	require.NoError(t, err)
	require.Equal(t, gaveUp.entry.key, ahead, "it has seen a writer before it")
	require.NoError(t, late.entry.settleToken(t.Context(), fetch(t, d, late.entry.key).Kvs[0], nil), "as if it had seen none")
	require.Zero(t, late.entry.token.Load(), "the writer is found in the folder")
	require.NoError(t, holder.Release(t.Context()))
	require.NoError(t, gaveUp.Release(t.Context()))
	settleAlone(t, late)
	require.Greater(t, late.Token(), holder.Token())
	require.NoError(t, oldest.Release(t.Context()))
	_, err = d.cli.Delete(t.Context(), late.entry.hint())
	require.NoError(t, err)
	beside := standShared(t, d, name)
	settleAlone(t, beside)
	assert.Equal(t, late.Token(), beside.Token(), "of one that has it, and not the revision of the slow one")
	require.NoError(t, beside.Release(t.Context()))
	require.NoError(t, late.Release(t.Context()))

	next := standShared(t, d, name)
	settleAlone(t, next)
	assert.GreaterOrEqual(t, next.Token(), late.Token(), "a resource has seen that of the one before")
	settleAlone(t, slow)
	assert.Equal(t, next.Token(), slow.Token())
	require.NoError(t, slow.Release(t.Context()))
	require.NoError(t, next.Release(t.Context()))
}

// A hint may be old: it counts for nothing when its share has ended, and its owner may have come
// back. Nor does a share of the session that others have removed, of which its holder has yet to hear.
func TestHint_ofAShareThatHasEndedCountsForNothing(t *testing.T) {
	t.Parallel()
	d, other := driverAt(t, testserver.SharedEtcd(t)), driverAt(t, testserver.SharedEtcd(t)) // a session knows of its own shares
	req := driver.Request{Name: claims.Fresh(), TTL: time.Minute}
	first := share(t, d, req)
	at := first.entry
	require.Len(t, fetch(t, d, at.hint()).Kvs, 1, "others find the token at the first")
	old := at.hintValue(formatToken(at.created.Load()), formatToken(at.created.Load()))
	require.NoError(t, first.Release(t.Context()))
	require.Empty(t, fetch(t, d, at.hint()).Kvs, "it has gone with its share")
	writer := take(t, d, req)
	require.NoError(t, writer.Release(t.Context()))

	_, err := d.cli.Put(t.Context(), at.hint(), old)
	require.NoError(t, err)
	back := share(t, d, req)
	require.Equal(t, at.key, back.entry.key)
	assert.Greater(t, back.Token(), writer.Token())
	_, err = d.cli.Put(t.Context(), at.hint(), old)
	require.NoError(t, err)
	beside := share(t, other, req)
	assert.Equal(t, back.Token(), beside.Token())
	require.NoError(t, beside.Release(t.Context()))
	for _, junk := range []string{"", "x", "x\x00y\x00z", "\x00\x001\x002\x003"} {
		_, err = d.cli.Put(t.Context(), at.hint(), junk)
		require.NoError(t, err)
		l := share(t, other, req)
		assert.Equal(t, back.Token(), l.Token(), "%q", junk)
		require.NoError(t, l.Release(t.Context()))
	}
	require.NoError(t, back.Release(t.Context()))
	_, err = d.cli.Delete(t.Context(), share(t, d, req).entry.key)
	require.NoError(t, err)
	writer = take(t, d, req)
	require.NoError(t, writer.Release(t.Context()))
	assert.Greater(t, share(t, d, req).Token(), writer.Token())
}

// Shares that are settled together are granted without another look, but for one whose key is gone.
func TestSettleTogether_grantsWhatIsThere(t *testing.T) {
	t.Parallel()
	d, name := driverAt(t, testserver.SharedEtcd(t)), claims.Fresh()
	holder, _ := stand(t, d, name)
	var shares []*claim
	var at watch
	for range 4 { // the last settles its own token with the oldest's
		c := standShared(t, d, name)
		shares, at.waiting = append(shares, c), append(at.waiting, c.entry)
	}
	require.NoError(t, holder.Release(t.Context()))
	_, err := d.cli.Delete(t.Context(), shares[1].entry.key)
	require.NoError(t, err)
	at.key = holder.entry.key
	holder.entry.session.settleTogether(&at)
	for i, c := range shares {
		assert.Equal(t, i >= 2, c.entry.granted.Load(), "share %d", i)
		_, err := c.Ask(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Extend(t.Context(), time.Minute))
		assert.Equal(t, shares[3].Token(), c.Token())
		require.NoError(t, c.Release(t.Context()))
	}
	first, next, last := standShared(t, d, name), standShared(t, d, name), standShared(t, d, name)
	d.kv = &reading{KV: d.kv, before: func() {
		if last.entry.token.Load() != 0 { // it ends when its token is settled, with that of the first
			_, err := d.cli.Delete(t.Context(), last.entry.key)
			require.NoError(t, err)
		}
	}}
	at.waiting = []*entry{first.entry, next.entry, last.entry}
	holder.entry.session.settleTogether(&at)
	assert.Zero(t, next.entry.token.Load(), "who has that token may all have ended")
	require.ErrorIs(t, last.Release(t.Context()), driver.ErrLost)
	require.NoError(t, next.Release(t.Context()))
	next.entry.settleAs(7, "") // when its release has begun
	assert.Empty(t, next.entry.session.shares, "no other is put beside it")
}

// Who settles the token of another's share leaves it on the other's session.
func TestSettle_leavesASharesSession(t *testing.T) {
	t.Parallel()
	d, other := driverAt(t, testserver.SharedEtcd(t)), driverAt(t, testserver.SharedEtcd(t))
	name := claims.Fresh()
	holder, _ := stand(t, d, name)
	slow, l := standShared(t, other, name), standShared(t, d, name)
	require.NoError(t, holder.Release(t.Context()))
	settleAlone(t, l)
	found := fetch(t, d, slow.entry.key)
	require.Len(t, found.Kvs, 1)
	assert.Equal(t, int64(l.Token()), parseValue(found.Kvs[0]).token)
	assert.Equal(t, slow.entry.session.id, clientv3.LeaseID(found.Kvs[0].Lease))
	gone := standShared(t, d, name)
	own, settled := fetch(t, d, gone.entry.key), fetch(t, d, l.entry.key)
	_, err := d.cli.Delete(t.Context(), gone.entry.key)
	require.NoError(t, err)
	require.NoError(t, gone.entry.adoptToken(t.Context(), own.Kvs[0], settled.Kvs[0], false))
	assert.Empty(t, fetch(t, d, gone.entry.key).Kvs, "a share that was removed does not come back")
	require.NoError(t, other.Close())
	assert.Empty(t, fetch(t, d, slow.entry.key).Kvs)
	require.NoError(t, l.Release(t.Context()))
}

// One that waits until another has read all shares heeds its ctx, and leaves nothing.
func TestHint_whoWaitsToLookHeedsItsContext(t *testing.T) {
	t.Parallel()
	d := driverAt(t, testserver.SharedEtcd(t))
	req := driver.Request{Name: claims.Fresh(), TTL: time.Minute}
	first := share(t, d, req)
	at, other := first.entry, driverAt(t, testserver.SharedEtcd(t))
	_, err := d.cli.Delete(t.Context(), at.hint())
	require.NoError(t, err)
	looking := acquire(t, other, req.TTL).entry.session.looking
	looking <- struct{}{} // another looks, and is not done
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	gaveUp, err := claims.Share(ctx, other, req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotNil(t, gaveUp, "its key is there")
	require.NoError(t, gaveUp.Release(t.Context()))
	<-looking
	next := share(t, other, req)
	assert.Equal(t, first.Token(), next.Token())
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, first.Release(t.Context()))
	assert.Empty(t, fetch(t, d, at.folder, clientv3.WithPrefix()).Kvs)
}

// A share waits for another of its session to settle first. If its ctx ends meanwhile it has sent
// nothing, and leaves nothing: no doubt, and no tombstone. One that is not awaited any more settles
// by itself.
func TestEnterShared_whoseContextEndsBeforeItsTurn(t *testing.T) {
	t.Parallel()
	d, name := driverAt(t, testserver.SharedEtcd(t)), claims.Fresh()
	req := driver.Request{Name: name, TTL: time.Minute, Shared: true, Wake: func() {}}
	first := share(t, d, req)
	e := first.entry
	require.NoError(t, first.Release(t.Context()))
	_, known, done := e.session.awaitShare(t.Context(), e.folder)
	require.False(t, known)
	second := d.Claim(req).(*claim)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := second.Ask(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.False(t, second.entry != nil && second.entry.doubtful.Load())
	require.NoError(t, second.Release(t.Context()))
	assert.Zero(t, e.session.tombstones)
	done() // it failed
	require.NoError(t, share(t, d, req).Release(t.Context()))
}
