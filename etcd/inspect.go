package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// patience is the time that an inspection without a deadline has.
const patience = 30 * time.Second

// Inspect implements driver.Inspector: one request that reads the queue, and, if the lock is held, one for what is left of the
// holder's session, in whole seconds, rounded down. When nobody holds the lock no token is known.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	o := d.newOutage(outage.TTL(ctx, patience), unheard)
	for {
		state, session, err := d.readQueue(ctx, o, folderOf(name))
		if err != nil || !state.Held {
			return state, err
		}
		left, err := ask(ctx, o, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return d.cli.TimeToLive(ctx, session)
		})
		if err != nil {
			return driver.State{}, err
		}
		if left.GrantedTTL > 0 {
			// A new leader gives each session a little more, and one that is overdue has less than nothing.
			state.Left = time.Duration(max(min(left.TTL, left.GrantedTTL), 0)) * time.Second
			return state, nil
		}
		// The session has ended since, and with it the hold; unless a member that is cut off says so.
		if err := clock.Sleep(ctx, outage.Pause(outage.TTL(ctx, patience))); err != nil {
			return driver.State{}, err
		}
	}
}

// readQueue returns the holder and the waiters of a folder, and the session of the first. Marks are in another folder, and a key
// is never there together with the mark of its owner.
func (d *Driver) readQueue(ctx context.Context, o *outage.Outage, folder string) (driver.State, clientv3.LeaseID, error) {
	found, err := ask(ctx, o, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.cli.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	})
	if err != nil {
		return driver.State{}, 0, err
	}
	var state driver.State
	var session clientv3.LeaseID
	for _, kv := range found.Kvs {
		if !isContender(kv, folder) {
			continue
		}
		one := participant(kv, folder)
		if state.Held {
			state.Waiters = append(state.Waiters, one)
			continue
		}
		state.Held, state.Holder, state.Token = true, one, uint64(kv.CreateRevision)
		session = clientv3.LeaseID(kv.Lease)
	}
	return state, session, nil
}

// participant returns the contender whose key in folder is kv.
func participant(kv *mvccpb.KeyValue, folder string) driver.Participant {
	return driver.Participant{ID: string(kv.Key[len(folder):]), Metadata: parseValue(kv).metadata}
}
