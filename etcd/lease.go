package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// lease is one contender: a place in the queue, whether or not it is the first. It implements
// [driver.LossNotifier] and [driver.Leaver].
type lease struct {
	place
	session  *session
	metadata string
	shared   bool        // a share is wanted
	left     atomic.Bool // see Leave

	mu       sync.Mutex
	created  int64  // the revision that created the key; 0 if that is not known
	phase    int64  // the token of a share that was granted beside others, or 0
	hinted   string // what a hint says of this share, or empty
	doubtful bool   // a request that creates the key may have been made without our knowing, or may still be
	asked    bool   // a release was sent
	watch    int64  // the number of the watch of the key, or 0
	finished bool
	result   error // of a Release once it is finished: nil or ErrLost
}

// Token implements driver.Lease.
func (l *lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(cmp.Or(l.phase, l.created))
}

// revision returns the revision that created the key, or 0 if that is not known.
func (l *lease) revision() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.created
}

// Validity implements driver.Lease.
func (l *lease) Validity() time.Duration { return l.session.Left() }

// NotifyLost implements driver.LossNotifier.
func (l *lease) NotifyLost(f func()) { l.session.Notify(l, f) }

// Leave implements driver.Leaver.
func (l *lease) Leave() { l.left.Store(true) }

// Extend implements driver.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.session.driver.ExtendAll(ctx, []driver.Lease{l}, ttl)[0]
}

// Release implements driver.Lease. A lease whose take is in doubt is also kept from coming back.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	created, doubtful, asked, finished, result := l.created, l.doubtful, l.asked, l.finished, l.result
	l.asked = true
	l.mu.Unlock()
	if finished {
		return result
	}
	s := l.session
	o := s.driver.newOutage(s.TTL, func(error) { asked = true })
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) { return l.remove(ctx, created, doubtful) })
	missing := err == nil && !resp.Succeeded && created != 0
	if missing && forced(resp) {
		s.doubt() // for the mark
		return l.finish(driver.ErrLost)
	}
	if missing && asked {
		// We have deleted it before, unless the session had ended.
		err, missing = o.Ask(ctx, s.renew), false
	}
	switch {
	case missing || errors.Is(err, errSessionEnded):
		return l.finish(driver.ErrLost)
	case err != nil:
		return err
	default:
		return l.finish(nil)
	}
}

// remove deletes the key. In doubt the same step puts a mark, on the same session, that every take compares with: the take may
// arrive later, for as long as the session lives. If the key is not there the mark that is there is read, and left: it may be that of a ForceRelease.
func (l *lease) remove(ctx context.Context, created int64, doubtful bool) (*clientv3.TxnResponse, error) {
	ours := clientv3.Compare(clientv3.CreateRevision(l.key), "=", created)
	del := clientv3.OpDelete(l.key)
	dels := append(l.dropHint(), del)
	txn := l.session.driver.cli.Txn(ctx).If(ours)
	if !doubtful {
		return txn.Then(dels...).Else(clientv3.OpGet(l.dead)).Commit()
	}
	mark := clientv3.OpPut(l.dead, "", clientv3.WithLease(l.session.id))
	unmarked := clientv3.OpTxn([]clientv3.Cmp{l.alive()}, []clientv3.Op{mark}, nil)
	resp, err := txn.Then(append(dels, mark)...).Else(clientv3.OpGet(l.dead), del, unmarked).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		// The mark has to wait for space. Those behind the key do not: its owner is not used again.
		_, _ = l.session.driver.cli.Delete(ctx, l.key)
	}
	return resp, err
}

// finish ends the lease, unless it has ended, and returns the result of its Release.
func (l *lease) finish(result error) error {
	l.mu.Lock()
	if l.finished {
		defer l.mu.Unlock()
		return l.result
	}
	l.finished, l.result = true, result
	watch, share, reusable := l.watch, l.phase != 0, !l.doubtful && (result == nil || l.created == 0)
	l.mu.Unlock()
	if reusable {
		l.session.returnOwner(l.owner)
	}
	if share {
		l.session.forgetShare(l.folder, l.key)
	}
	if watch != 0 {
		l.session.watcher.remove(watch)
	}
	l.session.Leave(l)
	return result
}

// isKey reports whether kv, found at the key, is the one that we put there.
func (l *lease) isKey(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.CreateRevision == l.revision()
}

// leaving reports whether the lease has ended, or may be about to by our own release.
func (l *lease) leaving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished || l.asked
}

func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// keysPerLook is how many keys are looked at in one request; a server allows 128 by default.
const keysPerLook = 100

// extension is one of the leases that ExtendAll extends, and where its error goes.
type extension struct {
	*lease
	err *error
}

// ExtendAll renews the session, or sessions, of the leases, and then looks whether the keys are still there: a key
// could not be known to be there after a renewal that was made later.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	bySession := map[*session][]extension{}
	for i, l := range leases {
		l := l.(*lease)
		bySession[l.session] = append(bySession[l.session], extension{l, &errs[i]})
	}
	var answered sync.WaitGroup
	for s, all := range bySession {
		answered.Go(func() {
			o := d.newOutage(s.TTL, unheard)
			renewed := o.Ask(ctx, s.renew)
			for some := range slices.Chunk(all, keysPerLook) {
				d.verify(ctx, o, some, renewed)
			}
		})
	}
	answered.Wait()
	return errs
}

// verify sets the errors of leases whose session's renewal has ended with err.
func (d *Driver) verify(ctx context.Context, o *outage.Outage, leases []extension, err error) {
	var resp *clientv3.TxnResponse
	if err == nil {
		ops := make([]clientv3.Op, len(leases))
		for i, l := range leases {
			ops[i] = l.own()
		}
		resp, err = ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) { return d.cli.Txn(ctx).Then(ops...).Commit() })
	}
	for i, l := range leases {
		switch {
		case err != nil:
			*l.err = asLost(err)
		case l.ended() || !l.isKey(first(resp.Responses[i])):
			*l.err = driver.ErrLost
		}
	}
}
