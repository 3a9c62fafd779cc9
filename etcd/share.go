package etcd

import (
	"context"
	"slices"
	"strconv"
	"strings"

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
//	beside   a share of our session is settled: put our key with its token, if that share is there
//	first    the queue is empty: the token is the revision of our key
//	hinted   the hint names a settled share: adopt its token
//	search   read the folder: adopt the token of a settled share, or else settle our token and that of
//	         the oldest share as the oldest's revision
//
// Each row is one transaction. The first two compare that no writer is in the queue, the others that our
// key is unchanged (no writer can come before it any more), and that the share whose token is taken is
// there, or unchanged if it is not settled. Of two shares that settle at once one fails, reads again,
// and sees the other's token. Why tokens agree and increase: docs/evidence/protocols.md. Lost reply:
// our own key has the token, if it was settled.
//
// The hint, a key beside the folder, only saves reads: it counts for nothing if its share is not there.

// enqueueShared is enqueue for a share. If no writer is in the queue it settles the token, too.
func (e *entry) enqueueShared(ctx context.Context, waits bool) (ahead string, err error) {
	hint, behind := e.hintValue(ownRevision, ownRevision), []clientv3.Cmp{e.alive(), e.absent()}
	if !waits {
		behind = append(behind, e.noWriter())
	}
	// The server reads all keys for empty, and for oldest. Behind a writer it reads no share: noWriter
	// is evaluated before empty.
	conditions, then := []clientv3.Cmp{e.alive(), e.noWriter(), e.empty()}, []clientv3.Op{e.putShare(ownRevision), e.putHint(hint)}
	otherwise := []clientv3.Op{
		e.own(), e.earlier(clientv3.WithLimit(1)), clientv3.OpGet(e.hint()), clientv3.OpTxn(behind, []clientv3.Op{e.putShare("")}, nil),
	}
	if !waits {
		otherwise = append(otherwise, e.oldest())
	}
	known, beside := e.session.knownShare(e.folder)
	if beside {
		otherwise = []clientv3.Op{e.own(), clientv3.OpTxn(conditions, then, otherwise)}
		there := clientv3.Compare(clientv3.CreateRevision(known.key), "=", known.created)
		conditions, then = []clientv3.Cmp{e.noWriter(), e.alive(), e.absent(), there}, []clientv3.Op{e.putShare(formatToken(known.token))}
	}
	resp, err := e.take(ctx, conditions, then, otherwise)
	if err != nil {
		return "", err
	}
	if beside {
		if resp.Succeeded {
			e.settleAs(known.token, "")
			return "", nil
		}
		resp = (*clientv3.TxnResponse)(resp.Responses[1].GetResponseTxn())
	}
	if resp.Succeeded {
		e.settleAs(e.created.Load(), hint)
		return "", nil
	}
	writer, hinted := first(resp.Responses[1]), first(resp.Responses[2])
	switch done := hasPut(resp); {
	case done && e.waitsFor(writer):
		return string(writer.Key), nil
	case done && writer == nil:
		own := &mvccpb.KeyValue{Value: []byte(shareValue("", "")), ModRevision: e.created.Load()}
		if err := e.settleToken(ctx, own, hinted); err != nil || e.token.Load() != 0 {
			return "", err
		}
		return e.readPredecessor(ctx)
	case e.created.Load() != 0:
		return e.readPredecessor(ctx)
	case waits || writer == nil: // there is a tombstone
		return "", errRemoved
	}
	if oldest := first(resp.Responses[4]); e.waitsFor(writer) && isContender(oldest, e.folder) {
		return "", &driver.HeldError{Holder: participant(oldest, e.folder)}
	}
	return e.enqueueShared(ctx, true)
}

func (e *entry) putShare(token string) clientv3.Op { return e.put(shareValue(token, e.Metadata)) }

// settleAs records our token, and the hint's value if that names us.
func (e *entry) settleAs(token int64, hinted string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token.Store(token)
	if e.hinted = hinted; !e.finished {
		e.session.noteShare(e.folder, knownShare{e.key, e.created.Load(), token})
	}
}

// settleToken settles the token of our share, with no writer before it, unless somebody has come or
// gone, or been settled, since our key and the hint were read. One share of a session searches at a
// time, since it puts what it finds into the hint.
func (e *entry) settleToken(ctx context.Context, own, hint *mvccpb.KeyValue) error {
	if err := e.adoptToken(ctx, own, e.hintedShare(hint), false); err != nil || e.token.Load() != 0 {
		return err
	}
	select {
	case e.session.looking <- struct{}{}:
		defer func() { <-e.session.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var read int64
	if hint != nil {
		read = hint.ModRevision
	}
	resp, err := e.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.hint()), "=", read)}, []clientv3.Op{readFolder(e.folder)}, nil)
	if err != nil || !resp.Succeeded {
		return err
	}
	var witness *mvccpb.KeyValue
	own = nil
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
	return e.adoptToken(ctx, own, witness, true)
}

// adoptToken settles our token as that of the witness, if there is one: a share whose token is settled,
// or else the oldest. If hint is true, the hint names us from now on. Our own key may have it already.
func (e *entry) adoptToken(ctx context.Context, own, witness *mvccpb.KeyValue, hint bool) error {
	if own == nil {
		return nil
	}
	if token := parseValue(own).token; token != 0 {
		e.settleAs(token, "")
		return nil
	}
	if witness == nil {
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
	puts, hinted := append(puts, e.putShare(formatToken(token))), ""
	if hint {
		hinted = e.hintValue(formatToken(e.created.Load()), formatToken(token))
		puts = append(puts, e.putHint(hinted))
	}
	resp, err := e.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", own.ModRevision), same}, puts, nil)
	if err == nil && resp.Succeeded {
		e.settleAs(token, hinted)
	}
	return err
}

// hintValue names us, by our ID, the revision that created our key, and our token. Either number is
// ownRevision if it is that of the hint. The share that put the hint deletes it when it ends.
func (p *place) hintValue(created, token string) string {
	return p.key[len(p.folder):] + "\x00" + created + "\x00" + token
}

func (e *entry) putHint(value string) clientv3.Op {
	return clientv3.OpPut(e.hint(), value, clientv3.WithLease(e.session.id))
}

// hintedShare returns the share that a hint names, or nil.
func (p *place) hintedShare(hint *mvccpb.KeyValue) *mvccpb.KeyValue {
	if hint == nil {
		return nil
	}
	fields := strings.Split(string(hint.Value), "\x00")
	if len(fields) != 3 {
		return nil
	}
	var numbers [2]int64
	for i, field := range fields[1:] {
		if numbers[i], _ = strconv.ParseInt(field, 10, 64); field == ownRevision {
			numbers[i] = hint.ModRevision
		}
		if numbers[i] <= 0 {
			return nil
		}
	}
	return &mvccpb.KeyValue{Key: []byte(p.folder + fields[0]), CreateRevision: numbers[0], Value: []byte(shareValue(formatToken(numbers[1]), ""))}
}

// noteShare adds a share that the next ones may be put beside.
func (s *session) noteShare(folder string, known knownShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares[folder] = append(s.shares[folder], known)
}

// knownShare returns the share of the folder that was settled last, of those not known to have
// ended.
func (s *session) knownShare(folder string) (known knownShare, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shares := s.shares[folder]; len(shares) > 0 {
		return shares[len(shares)-1], true
	}
	return known, false
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
