package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// alive is true unless a Release has decided that this contender must not come.
func (l *lease) alive() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.dead), "=", 0)
}

func (l *lease) own() clientv3.Op { return clientv3.OpGet(l.key, clientv3.WithKeysOnly()) }

func (l *lease) put() clientv3.Op {
	return clientv3.OpPut(l.key, plainValue(l.metadata), clientv3.WithLease(l.session.id))
}

// take makes a transaction until it is answered. The transaction puts our key, or reads it first of all: an earlier request that
// was not answered may have put it, and may yet do so for as long as the session lives.
func (l *lease) take(ctx context.Context, o *outage.Outage, write func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := write(l.session.driver.cli.Txn(ctx)).Commit()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			l.session.End() // which nobody else might notice until the next renewal
		}
		if err != nil && !refused(err) {
			l.mu.Lock()
			l.doubtful = true
			l.mu.Unlock()
			l.session.doubt()
		}
		return resp, err
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if put((*etcdserverpb.TxnResponse)(resp)) {
		l.created = resp.Header.Revision
	} else if kv := first(resp.Responses[0]); kv != nil {
		l.created = kv.CreateRevision
	}
	return resp, nil
}

// put reports whether a transaction of take has put our key: itself, or by one within it.
func put(resp *etcdserverpb.TxnResponse) bool {
	return resp.GetSucceeded() || slices.ContainsFunc(resp.GetResponses(), func(r *etcdserverpb.ResponseOp) bool { return put(r.GetResponseTxn()) })
}

// enqueue puts the key and returns the key ahead of it, if there is one.
//
// Here and below, folders are read with their values: asked for keys only, etcd 3.7 leaves out their leases, too
// (https://github.com/etcd-io/etcd/issues/22209), by which a contender is told from what others have put there.
func (l *lease) enqueue(ctx context.Context, o *outage.Outage) (ahead string, err error) {
	absent := clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)
	resp, err := l.take(ctx, o, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(l.alive(), absent).Then(clientv3.OpGet(l.folder, clientv3.WithLastCreate()...), l.put()).Else(l.own())
	})
	if err != nil {
		return "", err
	}
	if resp.Succeeded {
		switch last := first(resp.Responses[0]); {
		case last == nil:
			return "", nil
		case isContender(last, l.folder):
			return string(last.Key), nil
		}
	}
	return l.look(ctx, o, l.key)
}

// look returns the key that is ahead of ours, if there is one. It also looks at our own: the session may have ended while we
// waited. If ahead, a key, still stands before ours, no other is read: of a folder the server reads all keys, however few it is
// asked for. Our own key as ahead stands for none.
func (l *lease) look(ctx context.Context, o *outage.Outage, ahead string) (string, error) {
	created := l.revision()
	for _, limit := range []int64{1, 0} { // the latest, and if that is not one of ours, all
		earlier := clientv3.OpGet(l.folder, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(created-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit))
		resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			// An owner may have come back, at the end of the queue.
			return l.session.driver.cli.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(ahead), ">", 0), clientv3.Compare(clientv3.CreateRevision(ahead), "<", created)).
				Then(l.own(), clientv3.OpGet(ahead)).Else(l.own(), earlier).Commit()
		})
		if err != nil {
			return "", err
		}
		if !l.isKey(first(resp.Responses[0])) {
			return "", l.removed(ctx, o)
		}
		found := resp.Responses[1].GetResponseRange().GetKvs()
		for _, kv := range found {
			if isContender(kv, l.folder) {
				return string(kv.Key), nil
			}
		}
		if len(found) == 0 {
			break
		}
		ahead = l.key
	}
	return "", nil
}

// removed returns why our key is not there.
func (l *lease) removed(ctx context.Context, o *outage.Outage) error {
	if err := o.Ask(ctx, l.session.renew); err != nil {
		return err
	}
	return errRemoved
}

// awaitDeparture waits until the key ahead is gone, and returns what is ahead then. For a share it is enough that it becomes one, too. It also looks now and then: a
// watch may hang, at a server that does. The watch begins now, and not where the last look has been: a server that
// has something to tell of the past gets round to that ten times a second. So there is a look after it has begun.
func (l *lease) awaitDeparture(ctx context.Context, o *outage.Outage, ahead string) (next string, err error) {
	lookAgain := min(max(l.session.TTL/3, time.Second), 5*time.Second)
	wctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), lookAgain+rand.N(lookAgain/4))
	defer cancel()
	forget := context.AfterFunc(l.session.Context(), cancel)
	defer forget()
	look, began := l.looker(), time.Now()
	changes := l.session.driver.cli.Watch(wctx, ahead, l.watched()...)
	told := receive(wctx, changes)
	if told {
		if next, err = look(ctx, o, ahead); err != nil || next != ahead {
			return next, err
		}
		told = receive(wctx, changes)
	}
	switch {
	case told:
	case ctx.Err() != nil:
		return "", ctx.Err()
	case l.session.Left() == 0:
		return "", errSessionEnded
	case time.Since(began) < lookAgain: // the watch has failed
		if err := clock.Sleep(ctx, outage.Pause(l.session.TTL)); err != nil {
			return "", err
		}
	}
	return look(ctx, o, ahead)
}

// receive waits for a response, and reports whether there is one before ctx ends. The library may take its time then to close
// the channel.
func receive(ctx context.Context, changes clientv3.WatchChan) bool {
	select {
	case resp, open := <-changes:
		return open && resp.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// first returns the first key of an answer, or nil if it has none.
func first(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
