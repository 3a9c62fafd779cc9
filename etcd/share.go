package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// AcquireShared implements driver.Sharer: a transaction that puts the key only if no writer stands in the queue.
func (d *Driver) AcquireShared(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.acquire(ctx, req, d.newOutage(req.TTL, unheard), (*lease).tryShared)
}

// AcquireSharedQueued implements driver.Sharer. A share waits for the last writer before it, and begins again like AcquireQueued.
func (d *Driver) AcquireSharedQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquireQueued(ctx, req, d.newOutage(req.TTL, answered), (*lease).queueShared)
}

// tryShared takes a share if no writer stands in the queue.
func (l *lease) tryShared(ctx context.Context, o *outage.Outage) error {
	resp, err := l.enqueueShared(ctx, o, l.amongShares()...)
	if err == nil && l.revision() == 0 {
		if err := l.heldBy(ctx, o, first(resp.Responses[2])); err != nil {
			return err
		}
		_, err = l.enqueueShared(ctx, o)
	}
	if err != nil {
		return err
	}
	switch ahead, err := l.settle(ctx, o, l.key); {
	case err != nil:
		return err
	case ahead != "":
		return driver.ErrHeld
	default:
		return l.fresh(ctx, o)
	}
}

// heldBy returns the error of a lock that is another's, or in whose queue a writer waits. The oldest key in the folder shows that if it is a writer's; else
// the others have to, and there may be keys of others among them.
func (l *lease) heldBy(ctx context.Context, o *outage.Outage, oldest *mvccpb.KeyValue) error {
	if isWriter(oldest, l.folder) {
		return &driver.HeldError{Holder: participant(oldest, l.folder)}
	}
	queue, err := l.session.driver.readQueue(ctx, o, l.folder)
	if err == nil && slices.ContainsFunc(queue, func(kv *mvccpb.KeyValue) bool { return isWriter(kv, l.folder) }) {
		err = &driver.HeldError{Holder: participant(queue[0], l.folder)}
	}
	return err
}

// queueShared takes a place in the queue and waits until no writer is before it.
func (l *lease) queueShared(ctx context.Context, o *outage.Outage) error {
	if _, err := l.enqueueShared(ctx, o); err != nil {
		return err
	}
	ahead, err := l.settle(ctx, o, l.key)
	return l.wait(ctx, o, ahead, err)
}

// amongShares is true if all who stand in the queue are shares, and somebody does.
func (l *lease) amongShares() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(l.folder), ">", shareMark).WithPrefix(),
		clientv3.Compare(clientv3.Value(l.folder), "<", clientv3.GetPrefixRangeEnd(shareMark)).WithPrefix(),
	}
}

// enqueueShared puts the key. If nobody stands in the queue that settles its token; else it also has to meet the conditions.
func (l *lease) enqueueShared(ctx context.Context, o *outage.Outage, conditions ...clientv3.Cmp) (*clientv3.TxnResponse, error) {
	l.shared = true
	empty := clientv3.Compare(clientv3.CreateRevision(l.folder), "=", 0).WithPrefix()
	absent := clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)
	unsettled := clientv3.OpTxn(append(conditions, l.alive(), absent), []clientv3.Op{l.putShare("")}, nil)
	resp, err := l.take(ctx, o, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(l.alive(), empty).Then(l.putShare(ownRevision)).Else(
			l.own(), unsettled, clientv3.OpGet(l.folder, clientv3.WithFirstCreate()...))
	})
	if err == nil && resp.Succeeded {
		l.setPhase(l.revision())
	}
	return resp, err
}

func (l *lease) putShare(token string) clientv3.Op {
	return clientv3.OpPut(l.key, shareValue(token, l.metadata), clientv3.WithLease(l.session.id))
}

func (l *lease) setPhase(token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = token
}

func (l *lease) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase != 0
}

// settle returns the last writer's key before ours, if there is one. Else it settles our token. If ahead still stands before ours, and is a
// writer's, no other is read, as in look.
func (l *lease) settle(ctx context.Context, o *outage.Outage, ahead string) (string, error) {
	for !l.settled() {
		created := l.revision()
		all := clientv3.OpGet(l.folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return l.session.driver.cli.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(ahead), ">", 0), clientv3.Compare(clientv3.CreateRevision(ahead), "<", created)).
				Then(l.own(), clientv3.OpGet(ahead)).Else(l.own(), all).Commit()
		})
		switch {
		case err != nil:
			return "", err
		case !l.isKey(first(resp.Responses[0])):
			return "", l.removed(ctx, o)
		case resp.Succeeded && isWriter(first(resp.Responses[1]), l.folder):
			return ahead, nil
		case resp.Succeeded:
			ahead = l.key
			continue
		}
		p := l.phaseOf(resp.Responses[1].GetResponseRange().GetKvs())
		if p.writer != "" {
			return p.writer, nil
		}
		if err := l.agree(ctx, o, p); err != nil {
			return "", err
		}
	}
	return "", nil
}

// agree settles our token, unless somebody of p has come or gone, or been settled, since p was read.
func (l *lease) agree(ctx context.Context, o *outage.Outage, p phase) error {
	if token := parseValue(p.own).token; token != 0 {
		l.setPhase(token)
		return nil
	}
	token, puts := parseValue(p.witness).token, []clientv3.Op{}
	if token == 0 {
		token = p.witness.CreateRevision
		if p.witness != p.own { // on whose session there may be keys that are none of our user's
			puts = append(puts, clientv3.OpPut(string(p.witness.Key), shareValue(formatToken(token), parseValue(p.witness).metadata), clientv3.WithIgnoreLease()))
		}
	}
	puts = append(puts, l.putShare(formatToken(token)))
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.session.driver.cli.Txn(ctx).If(
			clientv3.Compare(clientv3.ModRevision(l.key), "=", p.own.ModRevision),
			clientv3.Compare(clientv3.ModRevision(string(p.witness.Key)), "=", p.witness.ModRevision),
		).Then(puts...).Commit()
	})
	switch {
	case errors.Is(err, errSessionEnded):
		return l.removed(ctx, o) // which has the session notice
	case err != nil:
		return err
	case resp.Succeeded:
		l.setPhase(token)
	}
	return nil
}

// watched returns what a watch of the key ahead is told.
func (l *lease) watched() []clientv3.OpOption {
	if l.shared { // also that it is downgraded
		return []clientv3.OpOption{clientv3.WithCreatedNotify()}
	}
	return []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithCreatedNotify()}
}

// looker returns how we look whether we have to wait.
func (l *lease) looker() func(ctx context.Context, o *outage.Outage, ahead string) (string, error) {
	if l.shared {
		return l.settle
	}
	return l.look
}

// Downgrade implements driver.Downgrader: a transaction that makes the key a share's, which keeps its place and its token.
func (l *lease) Downgrade(ctx context.Context) error {
	if l.shared {
		return nil
	}
	if l.ended() {
		return driver.ErrLost
	}
	created := l.revision()
	resp, err := ask(ctx, l.session.driver.newOutage(l.session.TTL, unheard), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.session.driver.cli.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", created)).Then(l.putShare(ownRevision)).Commit()
	})
	switch {
	case err != nil:
		return asLost(err)
	case !resp.Succeeded:
		return driver.ErrLost
	default:
		return nil
	}
}
