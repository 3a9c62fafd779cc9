package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// forcedMark is the value of a mark that a ForceRelease has put. One that a contender puts itself has none.
const forcedMark = "forced"

// ForceRelease implements driver.ForceReleaser: a request that reads the queue, and one that removes the holder's key and puts a mark on the holder's
// session. The mark keeps a request of the holder that is under way from making the key again, and tells the holder, whose Unlock may be sent
// twice, that it was not it who removed the key. Of a lock that is shared it ends all shares, one after the other, or that whose ID is the Holder's.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	o := d.newOutage(outage.TTL(ctx, patience), unheard)
	folder := folderOf(name)
	for ended := false; ; {
		queue, err := d.readQueue(ctx, o, folder)
		if err != nil {
			return err
		}
		holder, err := held(queue, folder, shown)
		switch {
		case err != nil && ended:
			return nil
		case err != nil:
			return err
		}
		at := newPlace(name, participant(holder, folder).ID)
		resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return d.cli.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(at.key), "=", holder.CreateRevision)).
				Then(clientv3.OpDelete(at.key), clientv3.OpPut(at.dead, forcedMark, clientv3.WithLease(clientv3.LeaseID(holder.Lease)))).
				Else(clientv3.OpGet(at.dead)).Commit()
		})
		switch {
		case errors.Is(err, errSessionEnded): // and the hold with it
		case err != nil:
			return err
		case resp.Succeeded, forced(resp): // be it by an earlier request of ours that was not answered
			if ended = true; shown.Holder.ID != "" || !parseValue(holder).shared {
				return nil
			}
		}
	}
}

// held returns the holder that shown describes: one of several, if it has the ID of a share.
func held(queue []*mvccpb.KeyValue, folder string, shown driver.State) (*mvccpb.KeyValue, error) {
	if len(queue) == 0 {
		return nil, driver.ErrNotHeld
	}
	for _, kv := range queue[:holders(queue)] {
		id := participant(kv, folder).ID
		if (shown.Token == 0 || shown.Token == tokenOf(kv)) && (shown.Holder.ID == "" || shown.Holder.ID == id) {
			return kv, nil
		}
	}
	return nil, &driver.HeldError{Holder: participant(queue[0], folder)}
}

// forced reports whether a transaction that did not find a key found the mark of a ForceRelease, which it reads first then.
func forced(resp *clientv3.TxnResponse) bool {
	if resp.Succeeded {
		return false
	}
	mark := first(resp.Responses[0])
	return mark != nil && string(mark.Value) == forcedMark
}
