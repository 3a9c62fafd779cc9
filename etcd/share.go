package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// AcquireShared implements driver.Sharer: a transaction that puts the key only if no writer stands in the queue.
func (d *Driver) AcquireShared(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.acquire(ctx, req, d.newOutage(req.TTL, unheard), taking{take: (*lease).tryShared})
}

// AcquireSharedQueued implements driver.Sharer. A share waits for the last writer before it, and begins again like AcquireQueued.
func (d *Driver) AcquireSharedQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquire(ctx, req, d.newOutage(req.TTL, answered), taking{(*lease).queueShared, true})
}

// tryShared takes a share if no writer stands in the queue.
func (l *lease) tryShared(ctx context.Context, o *outage.Outage) error {
	oldest, err := l.enqueueShared(ctx, o, l.noWriter())
	if err == nil && l.revision() == 0 {
		if err := l.heldBy(ctx, o, oldest); err != nil {
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

// noWriter is true if no key of a writer stands in the queue, and nothing of others that comes before shares.
func (l *lease) noWriter() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.folder), "=", 0).WithRange(l.folder + readerMark)
}

// enqueueShared puts the key if the conditions hold. Where no writer stands in the queue it settles the token, too: it is that of the session's latest share, or of the
// share of the hint, in a second request, or, if nobody stands there, the revision of the key. If the key was not put, it returns the oldest key in the folder.
func (l *lease) enqueueShared(ctx context.Context, o *outage.Outage, conditions ...clientv3.Cmp) (oldest *mvccpb.KeyValue, err error) {
	if !l.shared {
		l.shared, l.place = true, placeIn(l.folder, readerMark+l.owner)
	}
	hinted, hints := l.hintValue(ownRevision, ownRevision), clientv3.Compare(clientv3.Version(l.hint()), ">", 0)
	absent := clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)
	empty := clientv3.Compare(clientv3.CreateRevision(l.folder), "=", 0).WithPrefix()
	behind := clientv3.OpTxn(append(conditions, l.alive(), absent), []clientv3.Op{l.putShare("")}, nil)
	otherwise := []clientv3.Op{l.own(), clientv3.OpTxn([]clientv3.Cmp{l.noWriter(), l.alive(), empty}, []clientv3.Op{l.putShare(ownRevision), l.putHint(hinted)}, []clientv3.Op{behind})}
	if len(conditions) > 0 {
		otherwise = append(otherwise, clientv3.OpGet(l.folder, clientv3.WithFirstCreate()...))
	}
	known, beside := l.session.knownShare(l.folder)
	named := l.hintValue(ownRevision, formatToken(known.token))
	resp, err := l.take(ctx, o, func(txn clientv3.Txn) clientv3.Txn {
		conditions, puts := []clientv3.Cmp{l.noWriter(), hints, l.alive(), absent}, []clientv3.Op{l.putShare(""), clientv3.OpGet(l.hint())}
		if !beside {
			return txn.If(conditions...).Then(puts...).Else(otherwise...)
		}
		unhinted := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version(l.hint()), "=", 0)}, []clientv3.Op{l.putHint(named)}, nil)
		return txn.If(l.noWriter(), l.alive(), absent, clientv3.Compare(clientv3.CreateRevision(known.key), "=", known.created)).
			Then(l.putShare(formatToken(known.token)), unhinted).Else(l.own(), clientv3.OpTxn(conditions, puts, otherwise))
	})
	if err == nil && beside {
		if resp.Succeeded {
			if !resp.Responses[1].GetResponseTxn().GetSucceeded() {
				named = ""
			}
			l.setPhase(known.token, named)
			return nil, nil
		}
		resp = (*clientv3.TxnResponse)(resp.Responses[1].GetResponseTxn())
	}
	switch {
	case err != nil:
		return nil, err
	case resp.Succeeded:
		own := &mvccpb.KeyValue{Value: []byte(shareValue("", "")), ModRevision: l.revision()}
		return nil, l.agree(ctx, o, l.hinting(own, first(resp.Responses[1])))
	case resp.Responses[1].GetResponseTxn().GetSucceeded():
		l.setPhase(l.revision(), hinted)
	}
	if len(conditions) > 0 {
		oldest = first(resp.Responses[2])
	}
	return oldest, nil
}

func (l *lease) putShare(token string) clientv3.Op {
	return clientv3.OpPut(l.key, shareValue(token, l.metadata), clientv3.WithLease(l.session.id))
}

// setPhase notes our token, and what of it is in the hint, if we are its share.
func (l *lease) setPhase(token int64, hinted string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase, l.hinted = token, hinted
	l.session.noteShare(l.folder, knownShare{l.key, l.created, token})
}

// knownShare is a share whose token is settled.
type knownShare struct {
	key            string
	created, token int64
}

// knownShares are the shares of a session for one folder.
type knownShares struct {
	latest string // the key of the one that was settled last
	all    map[string]knownShare
}

// noteShare has the next share for the folder find this one.
func (s *session) noteShare(folder string, known knownShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := s.shares[folder]
	if shares == nil {
		shares = &knownShares{all: map[string]knownShare{}}
		s.shares[folder] = shares
	}
	shares.latest, shares.all[known.key] = known.key, known
}

// knownShare returns the share of the folder that was settled last, or another, if any is not known to have ended.
func (s *session) knownShare(folder string) (known knownShare, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := s.shares[folder]
	if shares == nil {
		return known, false
	}
	if known, ok = shares.all[shares.latest]; !ok {
		for _, known = range shares.all {
			break
		}
	}
	return known, true
}

// forgetShare forgets a share that has ended.
func (s *session) forgetShare(folder, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shares := s.shares[folder]; shares != nil {
		if delete(shares.all, key); len(shares.all) == 0 {
			delete(s.shares, folder)
		}
	}
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
		writers := clientv3.OpGet(l.folder, clientv3.WithRange(l.folder+readerMark), clientv3.WithMaxCreateRev(created-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
		resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return l.session.driver.cli.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(ahead), ">", 0), clientv3.Compare(clientv3.CreateRevision(ahead), "<", created)).
				Then(clientv3.OpGet(l.key), clientv3.OpGet(ahead)).Else(clientv3.OpGet(l.key), writers, clientv3.OpGet(l.hint())).Commit()
		})
		if err != nil {
			return "", err
		}
		own := first(resp.Responses[0])
		if !l.isKey(own) {
			return "", l.removed(ctx, o)
		}
		if writer := l.firstWriter(resp.Responses[1]); writer != "" {
			return writer, nil
		}
		if resp.Succeeded {
			ahead = l.key
			continue
		}
		if err := l.agree(ctx, o, l.hinting(own, first(resp.Responses[2]))); err != nil {
			return "", err
		}
	}
	return "", nil
}

// firstWriter returns the first key of an answer that is a writer's, or nothing.
func (l *lease) firstWriter(r *etcdserverpb.ResponseOp) string {
	for _, kv := range r.GetResponseRange().GetKvs() {
		if isWriter(kv, l.folder) {
			return string(kv.Key)
		}
	}
	return ""
}

// agree settles our token, unless somebody of p has come or gone, or been settled, since p was read. If there is no share of the hint it looks for another: of one
// session one share does so at a time, for what it finds is in the hint then.
func (l *lease) agree(ctx context.Context, o *outage.Outage, p phase) error {
	if done, err := l.adopt(ctx, o, p, p.isOld(l.revision())); err != nil || done {
		return err
	}
	select {
	case l.session.looking <- struct{}{}:
		defer func() { <-l.session.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		all := clientv3.OpGet(l.folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		return l.session.driver.cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(l.hint()), "=", p.hint)).Then(all).Commit()
	})
	if err != nil || !resp.Succeeded {
		return err
	}
	if p := l.phaseOf(resp.Responses[0].GetResponseRange().GetKvs()); p.own != nil && p.writer == "" {
		_, err = l.adopt(ctx, o, p, true)
	}
	return err
}

// adopt settles our token as that of the witness, and reports whether it is settled. If hint is true others find it at our key from now on.
func (l *lease) adopt(ctx context.Context, o *outage.Outage, p phase, hint bool) (done bool, err error) {
	if token := parseValue(p.own).token; token != 0 {
		l.setPhase(token, "")
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
		if key != l.key { // on whose session there may be keys that are none of our user's
			puts = append(puts, clientv3.OpPut(key, shareValue(formatToken(token), parseValue(p.witness).metadata), clientv3.WithIgnoreLease()))
		}
	}
	puts, hinted := append(puts, l.putShare(formatToken(token))), ""
	if hint {
		hinted = l.hintValue(formatToken(l.revision()), formatToken(token))
		puts = append(puts, l.putHint(hinted))
	}
	resp, err := ask(ctx, o, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.session.driver.cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(l.key), "=", p.own.ModRevision), same).Then(puts...).Commit()
	})
	switch {
	case errors.Is(err, errSessionEnded):
		return false, l.removed(ctx, o) // which has the session notice
	case err != nil || !resp.Succeeded:
		return false, err
	default:
		l.setPhase(token, hinted)
		return true, nil
	}
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
	hinted := l.hintValue(formatToken(created), formatToken(created))
	resp, err := ask(ctx, l.session.driver.newOutage(l.session.TTL, unheard), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.session.driver.cli.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", created)).Then(l.putShare(ownRevision), l.putHint(hinted)).Commit()
	})
	switch {
	case err != nil:
		return asLost(err)
	case !resp.Succeeded:
		return driver.ErrLost
	default:
		l.setPhase(created, hinted)
		return nil
	}
}
