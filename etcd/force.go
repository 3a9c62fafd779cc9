package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
)

// forcedMark is the value of a mark that a ForceRelease has put. One that a contender puts itself
// has none.
const forcedMark = "forced"

// ForceRelease implements driver.Operator: a request that reads the queue, and one that
// removes the holder's key and puts a mark on the holder's session. Because of the mark, a request
// of the holder that is still under way cannot make the key again. If the holder's Unlock is sent
// twice, the second request finds no key. The mark shows whether ForceRelease, and not the first
// request, has removed the key. If the lock is shared, ForceRelease ends the Shares in shown, one
// after the other. If shown has a Holder instead, it ends the share with the ID of this Holder.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	folder := folderOf(name)
	for ended := false; !ended; {
		queue, _, err := d.readQueue(ctx, folder)
		if err != nil {
			return err
		}
		all, err := held(queue, folder, shown)
		if err != nil {
			return err
		}
		for _, holder := range all {
			gone, err := d.evict(ctx, newPlace(name, participant(holder, folder).ID), holder)
			if err != nil {
				return err
			}
			ended = ended || gone
		}
	}
	return nil
}

// evict reports whether it has ended the hold, or share, whose key is holder: else that has ended
// by itself.
func (d *backend) evict(ctx context.Context, at place, holder *mvccpb.KeyValue) (bool, error) {
	mark := clientv3.OpPut(at.tombstone, forcedMark, clientv3.WithLease(clientv3.LeaseID(holder.Lease)))
	resp, err := d.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(at.key), "=", holder.CreateRevision)},
		[]clientv3.Op{clientv3.OpDelete(at.key), mark}, []clientv3.Op{clientv3.OpGet(at.tombstone)})
	switch {
	case sessionEnded(err): // and the hold with it
		return false, nil
	case err != nil:
		return false, err
	default:
		return resp.Succeeded || forced(resp), nil // be it by an earlier request of ours that was not answered
	}
}

// held returns the holder that shown describes, or the shares.
func held(queue []*mvccpb.KeyValue, folder string, shown driver.State) (all []*mvccpb.KeyValue, err error) {
	if len(queue) == 0 {
		return nil, driver.ErrNotHeld
	}
	for _, kv := range queue[:holders(queue)] {
		if describes(shown, kv, folder) {
			all = append(all, kv)
		}
	}
	if len(all) == 0 {
		return nil, &driver.HeldError{Holder: participant(queue[0], folder)}
	}
	return all, nil
}

// describes reports whether kv, the key of one that holds, is that of the holder or of a share that
// is shown.
func describes(shown driver.State, kv *mvccpb.KeyValue, folder string) bool {
	id := participant(kv, folder).ID
	if shown.Token != 0 && shown.Token != tokenOf(kv) { // an owner may have come back
		return false
	}
	if shown.Holder.ID != "" || len(shown.Shares) == 0 {
		return shown.Holder.ID == "" || shown.Holder.ID == id
	}
	return slices.ContainsFunc(shown.Shares, func(p driver.Participant) bool { return p.ID == id })
}

// forced reports whether a transaction that did not find a key found the mark of a ForceRelease,
// which it reads first then.
func forced(resp *clientv3.TxnResponse) bool {
	if resp.Succeeded {
		return false
	}
	mark := first(resp.Responses[0])
	return mark != nil && string(mark.Value) == forcedMark
}
