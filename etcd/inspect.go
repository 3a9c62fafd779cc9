package etcd

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Inspect implements driver.Operator: one request that reads the queue, and, if the lock is held,
// one for what is left of the holder's session, in whole seconds, rounded down. If the lock is
// shared, it makes one for each session. When nobody holds the lock no token is known.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	folder := folderOf(name)
	for {
		queue, _, err := d.readQueue(ctx, folder)
		if err != nil || len(queue) == 0 {
			return driver.State{}, err
		}
		state, lasts := stateOf(queue, folder), false
		if state.Left, lasts, err = d.left(ctx, queue[:holders(queue)]); lasts {
			return state, nil
		}
		if err == nil { // the session has ended since, and with it the hold; unless a member that is cut off says so
			err = clock.Sleep(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return driver.State{}, err
		}
	}
}

// left returns for how long the longest of the sessions lasts that the keys are on, and whether any
// does.
func (d *backend) left(ctx context.Context, keys []*mvccpb.KeyValue) (longest time.Duration, lasts bool, err error) {
	asked := map[int64]bool{}
	for _, kv := range keys {
		if asked[kv.Lease] {
			continue
		}
		asked[kv.Lease] = true
		left, err := ask(ctx, d, func(ctx context.Context) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
			resp, err := d.leases().LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: kv.Lease})
			return resp, rpctypes.Error(err)
		})
		if err != nil {
			return 0, false, err
		}
		if left.GetGrantedTTL() > 0 {
			// A new leader gives each session a little more, and one that is overdue has less than
			// nothing.
			longest, lasts = max(longest, time.Duration(min(left.GetTTL(), left.GetGrantedTTL()))*time.Second), true
		}
	}
	return longest, lasts, nil
}

// readQueue returns the keys of the contenders in a folder, the oldest first, and the revision at
// which they were there. Marks are in another folder, and a key is never there together with the
// mark of its owner.
func (d *backend) readQueue(ctx context.Context, folder string) (queue []*mvccpb.KeyValue, revision int64, err error) {
	resp, err := d.commit(ctx, nil, []clientv3.Op{readFolder(folder)}, nil)
	if err != nil {
		return nil, 0, err
	}
	found := resp.Responses[0].GetResponseRange().GetKvs()
	return slices.DeleteFunc(found, func(kv *mvccpb.KeyValue) bool { return !isContender(kv, folder) }), resp.Header.Revision, nil
}

// readFolder reads the keys of a folder, the oldest first.
func readFolder(folder string) clientv3.Op {
	return clientv3.OpGet(folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// holders returns how many at the head of a queue hold the lock: a writer, or the shares that no
// writer is before.
func holders(queue []*mvccpb.KeyValue) int {
	n := slices.IndexFunc(queue, func(kv *mvccpb.KeyValue) bool { return !parseValue(kv).shared })
	switch {
	case n < 0:
		return len(queue)
	case n == 0:
		return 1
	default:
		return n
	}
}

// tokenOf returns the token of one that holds, or 0 if it is not settled.
func tokenOf(kv *mvccpb.KeyValue) uint64 {
	if v := parseValue(kv); v.shared {
		return uint64(v.token)
	}
	return uint64(kv.CreateRevision)
}

func stateOf(queue []*mvccpb.KeyValue, folder string) driver.State {
	state := driver.State{Held: true, Token: tokenOf(queue[0])}
	n := holders(queue)
	if parseValue(queue[0]).shared {
		for _, kv := range queue[:n] {
			state.Token = max(state.Token, tokenOf(kv)) // all that are settled have the same
			state.Shares = append(state.Shares, participant(kv, folder))
		}
	} else {
		state.Holder = participant(queue[0], folder)
	}
	for _, kv := range queue[n:] {
		state.Waiters = append(state.Waiters, participant(kv, folder))
	}
	return state
}

// participant returns the contender whose key in folder is kv.
func participant(kv *mvccpb.KeyValue, folder string) driver.Participant {
	return driver.Participant{ID: string(kv.Key[len(folder):]), Metadata: parseValue(kv).metadata}
}
