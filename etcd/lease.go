package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// lease is one contender: a place in the queue, whether or not it is the first. It implements
// [driver.LossNotifier].
type lease struct {
	place
	session *session
	value   string

	mu       sync.Mutex
	token    int64 // the revision that created the key; 0 if that is not known
	doubtful bool  // a request that creates the key may have been made without our knowing, or may still be
	asked    bool  // a release was sent, and no answer came
	finished bool  // released, or lost
	released bool
}

// Token implements driver.Lease.
func (l *lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(l.token)
}

// Validity implements driver.Lease.
func (l *lease) Validity() time.Duration { return l.session.Left() }

// NotifyLost implements driver.LossNotifier.
func (l *lease) NotifyLost(f func()) { l.session.Notify(l, f) }

// Extend implements driver.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.session.driver.ExtendAll(ctx, []driver.Lease{l}, ttl)[0]
}

// Release implements driver.Lease. A lease whose take is in doubt is also kept from coming back.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	token, doubtful, asked, finished, released := l.token, l.doubtful, l.asked, l.finished, l.released
	l.asked = true
	l.mu.Unlock()
	switch {
	case released:
		return nil
	case finished:
		return driver.ErrLost
	}
	s := l.session
	o := newOutage(s.TTL, s.driver.authenticates(), func(error) { asked = true })
	var resp *clientv3.TxnResponse
	err := o.Ask(ctx, func(ctx context.Context) (err error) {
		resp, err = l.remove(ctx, token, doubtful)
		return err
	})
	if err == nil && !resp.Succeeded && asked {
		// We have deleted it before, unless the session had ended.
		err = o.Ask(ctx, s.renew)
		resp.Succeeded = err == nil
	}
	switch {
	case errors.Is(err, errSessionEnded):
		return l.finish(false)
	case err != nil:
		return err
	default:
		return l.finish(resp.Succeeded || token == 0)
	}
}

// remove deletes the key. In doubt one step also puts a mark that every take compares with, on the same
// session: the take may arrive later, for as long as the session lives.
func (l *lease) remove(ctx context.Context, token int64, doubtful bool) (*clientv3.TxnResponse, error) {
	ours := clientv3.Compare(clientv3.CreateRevision(l.key), "=", token)
	del := clientv3.OpDelete(l.key)
	txn := l.session.driver.cli.Txn(ctx).If(ours)
	if !doubtful {
		return txn.Then(del).Commit()
	}
	mark := clientv3.OpPut(l.dead, "", clientv3.WithLease(l.session.id))
	resp, err := txn.Then(del, mark).Else(del, mark).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		// The mark has to wait for space. Those who stand behind the key do not, and nobody goes by its owner again.
		_, _ = l.session.driver.cli.Delete(ctx, l.key)
	}
	return resp, err
}

// finish ends the lease. Its result is that of a Release.
func (l *lease) finish(released bool) error {
	l.mu.Lock()
	again := l.finished
	l.finished = true
	if !again {
		l.released = released
	}
	released = l.released
	clean := !l.doubtful && (released || l.token == 0)
	l.mu.Unlock()
	if !again {
		if clean {
			l.session.returnOwner(l.owner)
		}
		l.session.Leave(l)
	}
	if released {
		return nil
	}
	return driver.ErrLost
}

// isKey says whether kv, what was found at the key, is what we put there.
func (l *lease) isKey(kv *mvccpb.KeyValue) bool {
	return kv != nil && uint64(kv.CreateRevision) == l.Token()
}

func (l *lease) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// keysPerLook is how many keys are looked at in one request; a server allows 128 by default.
const keysPerLook = 100

// ExtendAll renews the session, or sessions, of the leases, and then looks whether the keys are still there: a key
// could not be known to be there after a renewal that was made later.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, _ time.Duration) []error {
	errs := make([]error, len(leases))
	places := map[*session][]int{}
	for i, l := range leases {
		s := l.(*lease).session
		places[s] = append(places[s], i)
	}
	var answered sync.WaitGroup
	for s, all := range places {
		answered.Go(func() {
			o := newOutage(s.TTL, d.authenticates(), unheard)
			err := o.Ask(ctx, s.renew)
			for some := range slices.Chunk(all, keysPerLook) {
				look(ctx, o, s, leases, some, errs, err)
			}
		})
	}
	answered.Wait()
	return errs
}

// look sets the errors of the leases at places, after a renewal of their session that ended with renewed.
func look(ctx context.Context, o *outage.Outage, s *session, leases []driver.Lease, places []int, errs []error, renewed error) {
	var resp *clientv3.TxnResponse
	ops := make([]clientv3.Op, len(places))
	for i, at := range places {
		ops[i] = clientv3.OpGet(leases[at].(*lease).key, clientv3.WithKeysOnly())
	}
	err := renewed
	if err == nil {
		err = o.Ask(ctx, func(ctx context.Context) (err error) {
			resp, err = s.driver.cli.Txn(ctx).Then(ops...).Commit()
			return err
		})
	}
	for i, at := range places {
		l := leases[at].(*lease)
		switch {
		case err != nil:
			errs[at] = asLost(err)
		case l.lost() || !l.isKey(first(resp.Responses[i])):
			errs[at] = driver.ErrLost
		}
	}
}
