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

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// Of the keys in a folder. Not the keys only: etcd 3.7 then leaves out their leases, too (https://github.com/etcd-io/etcd/issues/22209),
// by which a contender is told from what others have put there.
var (
	oldest = clientv3.WithFirstCreate()
	newest = clientv3.WithLastCreate()
)

// Acquire implements driver.Driver: one request that puts the key only if the queue is empty.
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	o := newOutage(req.TTL, d.authenticates(), unheard)
	for again := false; ; again = true {
		l, err := d.contend(ctx, req, o)
		if err != nil {
			return nil, err
		}
		err = l.try(ctx, o)
		if again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return l.outcome(err)
		}
		_ = l.finish(false) // the session had ended unnoticed, and nothing can be on it
	}
}

// AcquireQueued implements driver.Queuer. A waiter whose session has ended begins again at the end of the
// queue.
func (d *Driver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	o := newOutage(req.TTL, d.authenticates(), answered)
	for {
		l, err := d.contend(ctx, req, o)
		if err == nil {
			err = l.queue(ctx, o)
			if err == nil || !errors.Is(err, errSessionEnded) {
				return l.outcome(err)
			}
			_ = l.finish(false)
		}
		if !errors.Is(err, errSessionEnded) {
			return nil, err
		}
		answered(err)
		if err := clock.Sleep(ctx, outage.Pause(req.TTL)); err != nil {
			return nil, err
		}
	}
}

// contend makes a contender that has no place yet.
func (d *Driver) contend(ctx context.Context, req driver.Request, o *outage.Outage) (*lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	var l *lease
	err := o.Ask(ctx, func(ctx context.Context) (err error) {
		l, err = d.join(ctx, req)
		return err
	})
	return l, err
}

// outcome is what an acquiring method returns of a lease and the error of taking it.
func (l *lease) outcome(err error) (driver.Lease, error) {
	l.mu.Lock()
	nothing := err != nil && !l.doubtful && l.token == 0
	l.mu.Unlock()
	if nothing {
		_ = l.finish(false)
		return nil, err
	}
	return l, err
}

func (l *lease) try(ctx context.Context, o *outage.Outage) error {
	var holder *mvccpb.KeyValue
	err := l.take(ctx, o, func(ctx context.Context) error {
		resp, err := l.session.driver.cli.Txn(ctx).
			If(l.alive(), clientv3.Compare(clientv3.CreateRevision(l.folder), "=", 0).WithPrefix()).
			Then(l.put()).
			Else(clientv3.OpGet(l.key, clientv3.WithKeysOnly()),
				clientv3.OpGet(l.folder, oldest...)).
			Commit()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			l.created(resp.Header.Revision)
			return nil
		}
		if own := first(resp.Responses[0]); own != nil { // by a request of ours that was not answered
			l.created(own.CreateRevision)
			return nil
		}
		holder = first(resp.Responses[1])
		return nil
	})
	switch {
	case err != nil:
		return err
	case l.Token() != 0:
		return l.fresh(ctx, o)
	case holder == nil || isContender(holder, l.folder):
		return driver.ErrHeld
	}
	// The oldest key is not of our making: who comes first is to be seen in the queue.
	ahead, err := l.enqueue(ctx, o)
	if err == nil && ahead != "" {
		return driver.ErrHeld
	}
	if err != nil {
		return err
	}
	return l.fresh(ctx, o)
}

// queue takes a place in the queue and waits until it is the first.
func (l *lease) queue(ctx context.Context, o *outage.Outage) error {
	ahead, err := l.enqueue(ctx, o)
	for err == nil && ahead != "" {
		o.Answered(driver.ErrHeld)
		ahead, err = l.awaitDeparture(ctx, o, ahead)
	}
	if err != nil {
		return err
	}
	return l.fresh(ctx, o)
}

// fresh renews a session of which little is left.
func (l *lease) fresh(ctx context.Context, o *outage.Outage) error {
	if s := l.session; s.Left() < s.TTL/5*3 {
		return o.Ask(ctx, s.renew)
	}
	return nil
}

// alive is true unless a Release has decided that this contender must not come.
func (l *lease) alive() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.dead), "=", 0)
}

func (l *lease) put() clientv3.Op {
	return clientv3.OpPut(l.key, l.value, clientv3.WithLease(l.session.id))
}

// take has f make a request that creates the key, until it is answered. What was not may be done at any time, for
// as long as the session lives.
func (l *lease) take(ctx context.Context, o *outage.Outage, f func(ctx context.Context) error) error {
	return o.Ask(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			l.session.End() // which nobody else might notice until the next renewal
		}
		if err != nil && !refused(err) {
			l.mu.Lock()
			l.doubtful = true
			l.mu.Unlock()
			l.session.doubt()
		}
		return err
	})
}

func (l *lease) created(revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = revision
}

// enqueue puts the key and returns the key ahead of it, if there is one.
func (l *lease) enqueue(ctx context.Context, o *outage.Outage) (ahead string, err error) {
	var last *mvccpb.KeyValue
	put := false
	err = l.take(ctx, o, func(ctx context.Context) error {
		resp, err := l.session.driver.cli.Txn(ctx).
			If(l.alive(), clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)).
			Then(clientv3.OpGet(l.folder, newest...), l.put()).
			Else(clientv3.OpGet(l.key, clientv3.WithKeysOnly())).
			Commit()
		if err != nil {
			return err
		}
		if put = resp.Succeeded; put {
			l.created(resp.Header.Revision)
			last = first(resp.Responses[0])
			return nil
		}
		if own := first(resp.Responses[0]); own != nil { // by a request of ours that was not answered
			l.created(own.CreateRevision)
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case put && last == nil:
		return "", nil
	case put && isContender(last, l.folder):
		return string(last.Key), nil
	default:
		return l.look(ctx, o)
	}
}

// look returns the key that is ahead of ours, if there is one. It also looks at our own: the session may have ended
// while we waited.
func (l *lease) look(ctx context.Context, o *outage.Outage) (ahead string, err error) {
	earlier := []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithMaxCreateRev(int64(l.Token()) - 1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
	}
	for _, options := range [][]clientv3.OpOption{append(slices.Clip(earlier), clientv3.WithLimit(1)), earlier} {
		var resp *clientv3.TxnResponse
		err = o.Ask(ctx, func(ctx context.Context) (err error) {
			resp, err = l.session.driver.cli.Txn(ctx).
				Then(clientv3.OpGet(l.key, clientv3.WithKeysOnly()), clientv3.OpGet(l.folder, options...)).Commit()
			return err
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
		// The last one is not of our making; let us see them all.
	}
	return "", nil
}

// glance is look for one who knows which key was ahead. It reads two keys, and the folder only if that one is gone: of a folder the
// server reads all keys, however few it is asked for.
func (l *lease) glance(ctx context.Context, o *outage.Outage, ahead string) (next string, err error) {
	var resp *clientv3.TxnResponse
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		resp, err = l.session.driver.cli.Txn(ctx).
			Then(clientv3.OpGet(l.key, clientv3.WithKeysOnly()), clientv3.OpGet(ahead)).Commit()
		return err
	})
	if err != nil {
		return "", err
	}
	if !l.isKey(first(resp.Responses[0])) {
		return "", l.removed(ctx, o)
	}
	// An owner may have come back, at the end of the queue.
	if kv := first(resp.Responses[1]); kv != nil && isContender(kv, l.folder) && uint64(kv.CreateRevision) < l.Token() {
		return ahead, nil
	}
	return l.look(ctx, o)
}

// awaitDeparture waits until the key ahead is gone, and returns what is ahead then. It also looks now and then: a
// watch may hang, at a server that does. The watch begins now, and not where the last look has been: a server that
// has something to tell of the past gets round to that ten times a second. So there is a look after it has begun.
func (l *lease) awaitDeparture(ctx context.Context, o *outage.Outage, ahead string) (next string, err error) {
	lookAgain := min(max(l.session.TTL/3, time.Second), 5*time.Second)
	wctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), lookAgain+rand.N(lookAgain/4))
	defer cancel()
	forget := context.AfterFunc(l.session.Context(), cancel)
	defer forget()
	began := time.Now()
	changes := l.session.driver.cli.Watch(wctx, ahead, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	heard := hear(wctx, changes)
	if heard {
		if next, err = l.glance(ctx, o, ahead); err != nil || next != ahead {
			return next, err
		}
		heard = hear(wctx, changes)
	}
	switch {
	case heard:
		return l.look(ctx, o)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case l.session.Left() == 0:
		return "", errSessionEnded
	case time.Since(began) < lookAgain: // the watch has failed
		if err := clock.Sleep(ctx, outage.Pause(l.session.TTL)); err != nil {
			return "", err
		}
	}
	return l.glance(ctx, o, ahead)
}

// hear waits for news, and says whether there are any before ctx ends; the library may take its time then to close
// the channel.
func hear(ctx context.Context, changes clientv3.WatchChan) bool {
	select {
	case resp, open := <-changes:
		return open && resp.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// removed is why our key is gone.
func (l *lease) removed(ctx context.Context, o *outage.Outage) error {
	if err := o.Ask(ctx, l.session.renew); err != nil {
		return err
	}
	return errRemoved
}

// first returns the first key of an answer, or nil if it has none.
func first(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
