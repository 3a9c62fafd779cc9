package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
)

// enterShared puts the key, and returns that of the last writer before it, if there is one. A claim
// that does not wait puts it only if no writer stands in the queue.
func (c *claim) enterShared(ctx context.Context) (ahead string, err error) {
	var conditions []clientv3.Cmp
	if c.Wake == nil {
		conditions = append(conditions, c.noWriter())
	}
	oldest, err := c.enqueueShared(ctx, conditions...)
	if err == nil && c.revision() == 0 && c.Wake == nil {
		if err := c.heldBy(ctx, oldest); err != nil {
			return "", err
		}
		_, err = c.enqueueShared(ctx)
	}
	if err != nil {
		return "", err
	}
	return c.settle(ctx, c.key)
}

// heldBy withdraws a claim that does not wait if the lock is another's, or a writer waits in its
// queue. The oldest key in the folder shows that if it is a writer's; else the others have to, and
// there may be keys of others among them.
func (c *claim) heldBy(ctx context.Context, oldest *mvccpb.KeyValue) error {
	if isWriter(oldest, c.folder) {
		return c.withdraw(ctx, &driver.HeldError{Holder: participant(oldest, c.folder)})
	}
	queue, err := c.of.readQueue(ctx, c.of.once(c.TTL), c.folder)
	if err == nil && slices.ContainsFunc(queue, func(kv *mvccpb.KeyValue) bool { return isWriter(kv, c.folder) }) {
		err = c.withdraw(ctx, &driver.HeldError{Holder: participant(queue[0], c.folder)})
	}
	return err
}

// enqueueShared puts the key if the conditions hold. Where no writer stands in the queue it settles
// the token, too: it is that of the session's latest share, or of the share of the hint, in a
// second request, or, if nobody stands there, the revision of the key. If the key was not put, it
// returns the oldest key in the folder.
func (c *claim) enqueueShared(ctx context.Context, conditions ...clientv3.Cmp) (oldest *mvccpb.KeyValue, err error) {
	hinted, hints := c.hintValue(ownRevision, ownRevision), clientv3.Compare(clientv3.Version(c.hint()), ">", 0)
	behind := clientv3.OpTxn(append(conditions, c.alive(), c.absent()), []clientv3.Op{c.putShare("")}, nil)
	otherwise := []clientv3.Op{c.own(), clientv3.OpTxn([]clientv3.Cmp{c.noWriter(), c.alive(), c.empty()}, []clientv3.Op{c.putShare(ownRevision), c.putHint(hinted)}, []clientv3.Op{behind})}
	if len(conditions) > 0 {
		otherwise = append(otherwise, clientv3.OpGet(c.folder, clientv3.WithFirstCreate()...))
	}
	known, beside := c.session.knownShare(c.folder)
	named := c.hintValue(ownRevision, formatToken(known.token))
	resp, err := c.take(ctx, func(txn clientv3.Txn) clientv3.Txn {
		conditions, puts := []clientv3.Cmp{c.noWriter(), hints, c.alive(), c.absent()}, []clientv3.Op{c.putShare(""), clientv3.OpGet(c.hint())}
		if !beside {
			return txn.If(conditions...).Then(puts...).Else(otherwise...)
		}
		unhinted := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(c.hint()), "=", 0)}, []clientv3.Op{c.putHint(named)}, nil)
		return txn.If(c.noWriter(), c.alive(), c.absent(), clientv3.Compare(clientv3.CreateRevision(known.key), "=", known.created)).
			Then(c.putShare(formatToken(known.token)), unhinted).Else(c.own(), clientv3.OpTxn(conditions, puts, otherwise))
	})
	if err == nil && beside {
		if resp.Succeeded {
			if !resp.Responses[1].GetResponseTxn().GetSucceeded() {
				named = ""
			}
			c.setPhase(known.token, named)
			return nil, nil
		}
		resp = (*clientv3.TxnResponse)(resp.Responses[1].GetResponseTxn())
	}
	switch {
	case err != nil:
		return nil, err
	case resp.Succeeded:
		own := &mvccpb.KeyValue{Value: []byte(shareValue("", "")), ModRevision: c.revision()}
		return nil, c.agree(ctx, c.hinting(own, first(resp.Responses[1])))
	case resp.Responses[1].GetResponseTxn().GetSucceeded():
		c.setPhase(c.revision(), hinted)
	}
	if len(conditions) > 0 {
		oldest = first(resp.Responses[2])
	}
	return oldest, nil
}

func (c *claim) putShare(token string) clientv3.Op {
	return clientv3.OpPut(c.key, shareValue(token, c.Metadata), clientv3.WithLease(c.session.id))
}

// setPhase notes our token, and what of it is in the hint, if we are its share.
func (c *claim) setPhase(token int64, hinted string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.hinted = token, hinted
	if !c.finished {
		c.session.noteShare(c.folder, knownShare{c.key, c.created, token})
	}
}

func (c *claim) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase != 0
}

// settle returns the last writer's key before ours, if there is one. Else it settles our token. If ahead still stands before ours, and is a
// writer's, no other is read, as in look.
func (c *claim) settle(ctx context.Context, ahead string) (string, error) {
	for !c.settled() {
		created := c.revision()
		writers := clientv3.OpGet(c.folder, clientv3.WithRange(c.folder+readerMark), clientv3.WithMaxCreateRev(created-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
		resp, err := c.txn(ctx, func(txn clientv3.Txn) clientv3.Txn {
			return txn.If(isBefore(ahead, created)...).
				Then(clientv3.OpGet(c.key), clientv3.OpGet(ahead)).Else(clientv3.OpGet(c.key), writers, clientv3.OpGet(c.hint()))
		})
		if err != nil {
			return "", err
		}
		own := first(resp.Responses[0])
		if !c.isKey(own) {
			return "", c.removed(ctx)
		}
		if writer := c.firstWriter(resp.Responses[1]); writer != "" {
			return writer, nil
		}
		if resp.Succeeded {
			ahead = c.key
			continue
		}
		if err := c.agree(ctx, c.hinting(own, first(resp.Responses[2]))); err != nil {
			return "", err
		}
	}
	return "", nil
}

// firstWriter returns the first key of an answer that is a writer's, or nothing.
func (p *place) firstWriter(r *etcdserverpb.ResponseOp) string {
	for _, kv := range r.GetResponseRange().GetKvs() {
		if isWriter(kv, p.folder) {
			return string(kv.Key)
		}
	}
	return ""
}

// agree settles our token, unless somebody of p has come or gone, or been settled, since p was read. If there is no share of the hint it looks for another: of one
// session one share does so at a time, for what it finds is in the hint then.
func (c *claim) agree(ctx context.Context, p phase) error {
	if done, err := c.adopt(ctx, p, p.isOld(c.revision())); err != nil || done {
		return err
	}
	select {
	case c.session.looking <- struct{}{}:
		defer func() { <-c.session.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	resp, err := c.txn(ctx, func(txn clientv3.Txn) clientv3.Txn {
		all := clientv3.OpGet(c.folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		return txn.If(clientv3.Compare(clientv3.ModRevision(c.hint()), "=", p.hint)).Then(all)
	})
	if err != nil || !resp.Succeeded {
		return err
	}
	if p := c.phaseOf(resp.Responses[0].GetResponseRange().GetKvs(), c.revision()); p.own != nil && p.writer == "" {
		_, err = c.adopt(ctx, p, true)
	}
	return err
}

// adopt settles our token as that of the witness, and reports whether it is settled. If hint is true others find it at our key from now on.
func (c *claim) adopt(ctx context.Context, p phase, hint bool) (done bool, err error) {
	if token := parseValue(p.own).token; token != 0 {
		c.setPhase(token, "")
		return true, nil
	}
	if p.witness == nil {
		return false, nil
	}
	key, token := string(p.witness.Key), parseValue(p.witness).token
	same := clientv3.Compare(clientv3.CreateRevision(key), "=", p.witness.CreateRevision)
	var puts []clientv3.Op
	if token == 0 {
		token, same = p.witness.CreateRevision, clientv3.Compare(clientv3.ModRevision(key), "=", p.witness.ModRevision)
		if key != c.key { // on whose session there may be keys that are none of our user's
			puts = append(puts, clientv3.OpPut(key, shareValue(formatToken(token), parseValue(p.witness).metadata), clientv3.WithIgnoreLease()))
		}
	}
	puts, hinted := append(puts, c.putShare(formatToken(token))), ""
	if hint {
		hinted = c.hintValue(formatToken(c.revision()), formatToken(token))
		puts = append(puts, c.putHint(hinted))
	}
	resp, err := c.txn(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(clientv3.Compare(clientv3.ModRevision(c.key), "=", p.own.ModRevision), same).Then(puts...)
	})
	switch {
	case errors.Is(err, errSessionEnded):
		return false, c.removed(ctx) // which has the session notice
	case err != nil || !resp.Succeeded:
		return false, err
	default:
		c.setPhase(token, hinted)
		return true, nil
	}
}

// Downgrade implements driver.Downgrader: a transaction that makes the key a share's, which keeps its place and its token.
func (c *claim) Downgrade(ctx context.Context) error {
	if c.Shared {
		return nil
	}
	if c.leaving() {
		return driver.ErrLost
	}
	created := c.revision()
	hinted := c.hintValue(formatToken(created), formatToken(created))
	resp, err := ask(ctx, c.of.newOutage(c.TTL), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.of.cli.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", created)).Then(c.putShare(ownRevision), c.putHint(hinted)).Commit()
	})
	switch {
	case err != nil:
		return asLost(err)
	case !resp.Succeeded:
		return driver.ErrLost
	default:
		c.setPhase(created, hinted)
		return nil
	}
}
