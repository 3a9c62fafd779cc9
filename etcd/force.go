package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// forcedMark is the value of a mark that a ForceRelease has put. One that a contender puts itself has none.
const forcedMark = "forced"

// ForceRelease implements driver.ForceReleaser: a request that reads the queue, and one that removes the holder's key and puts a mark on the holder's
// session. The mark keeps a request of the holder that is under way from making the key again, and tells the holder, whose Unlock may be sent
// twice, that it was not it who removed the key.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	o := d.newOutage(outage.TTL(ctx, patience), unheard)
	folder := folderOf(name)
	for {
		state, session, err := d.readQueue(ctx, o, folder)
		switch {
		case err != nil:
			return err
		case !state.Held:
			return driver.ErrNotHeld
		case shown.Token != 0 && shown.Token != state.Token, shown.Holder.ID != "" && shown.Holder.ID != state.Holder.ID:
			return &driver.HeldError{Holder: state.Holder}
		}
		at := newPlace(name, state.Holder.ID)
		resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return d.cli.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(at.key), "=", int64(state.Token))).
				Then(clientv3.OpDelete(at.key), clientv3.OpPut(at.dead, forcedMark, clientv3.WithLease(session))).
				Else(clientv3.OpGet(at.dead)).Commit()
		})
		switch {
		case errors.Is(err, errSessionEnded): // and the hold with it
		case err != nil:
			return err
		case resp.Succeeded, forced(resp): // be it by an earlier request of ours that was not answered
			return nil
		}
	}
}

// forced reports whether a transaction that did not find a key found the mark of a ForceRelease, which it reads first then.
func forced(resp *clientv3.TxnResponse) bool {
	if resp.Succeeded {
		return false
	}
	mark := first(resp.Responses[0])
	return mark != nil && string(mark.Value) == forcedMark
}
