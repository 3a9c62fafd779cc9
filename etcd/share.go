package etcd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
)

// knownShare is a share of a session whose token is settled.
type knownShare struct {
	key            string
	created, token int64
}

// How a share gets its token, which all shares that hold together have. A share whose token is settled
// has it in its value.
//
//	beside    a share of our session is settled: put our key with its token, if that share is there
//	first     the queue is empty: the token is the revision of our key
//	enqueue   otherwise: put our key without a token, and settle it by one of the next rows when no writer
//	          is before it
//	search    read the folder: adopt the token of a settled share, or else settle our token and that of
//	          the oldest share as the oldest's revision
//	together  the key that shares of our session have waited for is gone: the last of them settles its
//	          token, and the others adopt that, up to 100 in one transaction
//
// Search is a read and a transaction, together is several, each other row is one; so a share beside
// others of its session costs one to take and one to release. The first two compare that no writer
// is in the queue, the last two that our key is unchanged (no writer can come before it any
// more), and that the share whose token is taken is there, or unchanged if it is not settled. Of
// two shares that settle at once one fails, reads again, and sees the other's token. Why tokens
// agree and increase: docs/evidence/protocols.md. Lost reply: our own key has the token, if it was
// settled.

// enqueueShared is enqueue for a share. If no writer is in the queue it settles the token, too.
func (e *entry) enqueueShared(ctx context.Context, waits bool) (ahead string, err error) {
	behind := []clientv3.Cmp{e.alive(), e.absent()}
	if !waits {
		behind = append(behind, e.noWriter())
	}
	otherwise := []clientv3.Op{
		e.own(), e.earlier(clientv3.WithLimit(1)), clientv3.OpTxn(behind, []clientv3.Op{e.putShare("")}, nil),
	}
	if !waits {
		otherwise = append(otherwise, e.oldest())
	}
	// The server reads all keys for empty, and for oldest. Behind a writer it does not evaluate empty.
	conditions, then := []clientv3.Cmp{e.alive(), e.noWriter(), e.empty()}, []clientv3.Op{e.putShare(ownRevision)}
	known, beside, done := e.session.awaitShare(ctx, e.folder)
	defer done()
	if err := ctx.Err(); err != nil {
		return "", err // nothing was sent
	}
	if beside {
		there := clientv3.Compare(clientv3.CreateRevision(known.key), "=", known.created)
		conditions, then = []clientv3.Cmp{e.noWriter(), e.alive(), e.absent(), there}, []clientv3.Op{e.putShare(formatToken(known.token))}
	}
	resp, err := e.take(ctx, conditions, then, otherwise)
	switch {
	case err != nil:
		return "", err
	case resp.Succeeded && beside:
		e.settleAs(known.token)
		return "", nil
	case resp.Succeeded:
		e.settleAs(e.created.Load())
		return "", nil
	}
	writer := first(resp.Responses[1])
	switch put := hasPut(resp); {
	case put && e.waitsFor(writer):
		return string(writer.Key), nil
	case put && writer == nil:
		if err := e.settleToken(ctx); err != nil || e.token.Load() != 0 {
			return "", err
		}
		return e.readPredecessor(ctx, e.ahead)
	case e.created.Load() != 0:
		return e.readPredecessor(ctx, e.ahead)
	case waits || writer == nil: // there is a tombstone
		return "", errRemoved
	}
	if oldest := first(resp.Responses[3]); e.waitsFor(writer) && isContender(oldest, e.folder) {
		return "", &driver.HeldError{Holder: contenderAt(oldest, e.folder).Participant}
	}
	done()
	return e.enqueueShared(ctx, true)
}

func (e *entry) putShare(token string) clientv3.Op { return e.put(shareValue(token, e.Metadata)) }

// settleAs records our token.
func (e *entry) settleAs(token int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.token.Swap(token) == 0 && !e.released {
		e.session.noteShare(e.folder, knownShare{e.key, e.created.Load(), token})
	}
}

// settleToken settles the token of our share, with no writer before it, unless a share has ended or
// been settled since the folder was read.
func (e *entry) settleToken(ctx context.Context) error {
	resp, err := e.commit(ctx, nil, []clientv3.Op{readFolder(e.folder)}, nil)
	if err != nil {
		return err
	}
	var own, witness *mvccpb.KeyValue
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		switch v := parseValue(kv); {
		case !isContender(kv, e.folder):
		case !v.shared && kv.CreateRevision < e.created.Load():
			return nil
		case v.shared && (witness == nil || v.token != 0):
			witness = kv
		}
		if e.isKey(kv) {
			own = kv
		}
	}
	return e.adoptToken(ctx, own, witness)
}

// adoptToken settles our token as that of the witness: a share whose token is settled, or else the
// oldest. Our own key may have a token already.
func (e *entry) adoptToken(ctx context.Context, own, witness *mvccpb.KeyValue) error {
	if own == nil {
		return nil
	}
	if token := parseValue(own).token; token != 0 {
		e.settleAs(token)
		return nil
	}
	key, token := string(witness.Key), parseValue(witness).token
	same := clientv3.Compare(clientv3.CreateRevision(key), "=", witness.CreateRevision)
	var puts []clientv3.Op
	if token == 0 {
		token, same = witness.CreateRevision, clientv3.Compare(clientv3.ModRevision(key), "=", witness.ModRevision)
		if key != e.key { // on whose session there may be keys that are none of our user's
			puts = append(puts, clientv3.OpPut(key, shareValue(formatToken(token), parseValue(witness).metadata), clientv3.WithIgnoreLease()))
		}
	}
	puts = append(puts, e.putShare(formatToken(token)))
	resp, err := e.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", own.ModRevision), same}, puts, nil)
	if err == nil && resp.Succeeded {
		e.settleAs(token)
	}
	return err
}

// settleTogether settles the tokens of the shares that have waited for a key, which is gone or has
// become a share, and wakes them. The last of them settles its token first: if no writer is before it,
// none is before the others, who adopt its token, many in one transaction. Those that fail, or whose
// reply is lost, read for themselves when they are woken.
func (s *session) settleTogether(t *watch) {
	defer t.wake()
	ctx, cancel := context.WithTimeout(s.Context(), min(s.TTL/4, 5*time.Second))
	defer cancel()
	shares := slices.DeleteFunc(slices.Clone(t.waiting), (*entry).leaving)
	slices.SortFunc(shares, func(a, b *entry) int { return cmp.Compare(b.created.Load(), a.created.Load()) })
	if len(shares) == 0 {
		return
	}
	last := shares[0]
	if ahead, err := last.readPredecessor(ctx, t.key); err != nil || ahead != "" {
		return
	}
	last.granted.Store(true)
	token, there := last.token.Load(), clientv3.Compare(clientv3.CreateRevision(last.key), "=", last.created.Load())
	for some := range slices.Chunk(shares[1:], keysPerLook) {
		adopt := make([]clientv3.Op, len(some))
		for i, e := range some {
			unsettled := clientv3.Compare(clientv3.ModRevision(e.key), "=", e.created.Load())
			adopt[i] = clientv3.OpTxn([]clientv3.Cmp{unsettled}, []clientv3.Op{e.putShare(formatToken(token))}, nil)
		}
		resp, err := s.driver.commit(ctx, []clientv3.Cmp{there}, adopt, nil)
		if err != nil || !resp.Succeeded {
			return
		}
		for i, e := range some {
			if resp.Responses[i].GetResponseTxn().Succeeded {
				e.settleAs(token)
				e.granted.Store(true)
			}
		}
	}
}

// noteShare adds a share that the next ones may be put beside.
func (s *session) noteShare(folder string, known knownShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares[folder] = append(s.shares[folder], known)
}

// awaitShare returns the share of the folder that was settled last, of those whose release has not
// begun. If there is none, the first caller is to settle one, and to call done; others wait for that.
func (s *session) awaitShare(ctx context.Context, folder string) (known knownShare, ok bool, done func()) {
	for range 2 {
		s.mu.Lock()
		shares, settling := s.shares[folder], s.settling[folder]
		if len(shares) == 0 && settling == nil {
			over := make(chan struct{})
			s.settling[folder] = over
			done = sync.OnceFunc(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.settling, folder)
				close(over)
			})
		}
		s.mu.Unlock()
		switch {
		case len(shares) > 0:
			return shares[len(shares)-1], true, func() {}
		case done != nil:
			return known, false, done
		}
		select {
		case <-settling:
		case <-ctx.Done():
		}
	}
	return known, false, func() {}
}

// forgetShare forgets a share that has ended.
func (s *session) forgetShare(folder, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares[folder] = slices.DeleteFunc(s.shares[folder], func(known knownShare) bool { return known.key == key })
	if len(s.shares[folder]) == 0 {
		delete(s.shares, folder)
	}
}
