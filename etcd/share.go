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

// enterShared does what enter does. Where no writer stands in the queue it settles the token, too:
// it is that of the session's latest share, or of the share of the hint, in a second request, or,
// if nobody stands there, the revision of the key.
func (e *entry) enterShared(ctx context.Context, waits bool) (ahead string, err error) {
	hint, behind := e.hintValue(ownRevision, ownRevision), []clientv3.Cmp{e.alive(), e.absent()}
	if !waits {
		behind = append(behind, e.noWriter())
	}
	// The server reads all keys for empty, and for oldest. Behind a writer it reads no share for
	// this: noWriter is looked at before empty.
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
		if err := e.settle(ctx, own, hinted); err != nil || e.token.Load() != 0 {
			return "", err
		}
		return e.look(ctx)
	case e.created.Load() != 0:
		return e.look(ctx)
	case waits || writer == nil: // a mark keeps it from coming
		return "", errRemoved
	}
	if oldest := first(resp.Responses[4]); e.waitsFor(writer) && isContender(oldest, e.folder) {
		return "", &driver.HeldError{Holder: participant(oldest, e.folder)}
	}
	return e.enterShared(ctx, true)
}

func (e *entry) putShare(token string) clientv3.Op { return e.put(shareValue(token, e.Metadata)) }

// settleAs notes our token, and what of it is in the hint, if we are its share.
func (e *entry) settleAs(token int64, hinted string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token.Store(token)
	if e.hinted = hinted; !e.finished {
		e.session.noteShare(e.folder, knownShare{e.key, e.created.Load(), token})
	}
}

// settle settles the token of our share, with no writer before it, unless somebody has come or
// gone, or been settled, since our key and the hint were read. Without a share of the hint it looks
// for another: of one session one share does so at a time, for what it finds is in the hint then.
//
// A share that settles its token when none is settled settles that of the oldest, too. Of two that
// do so at once one fails, and then sees it: all have the same token. See
// docs/protocols-consensus.md.
func (e *entry) settle(ctx context.Context, own, hint *mvccpb.KeyValue) error {
	if err := e.adopt(ctx, own, e.hintedShare(hint), false); err != nil || e.token.Load() != 0 {
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
	return e.adopt(ctx, own, witness, true)
}

// adopt settles our token as that of the witness, if there is one: a share whose token is settled,
// or else the oldest. If hint is true others find it at our key from now on. Our own key may say it
// already.
func (e *entry) adopt(ctx context.Context, own, witness *mvccpb.KeyValue, hint bool) error {
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

// A hint, the value of a key beside the folder, names a share whose token is settled, so that not
// every share has to read them all to find one. It counts for nothing if that share is not there,
// and so it may be old, or missing. The share that put it deletes it when it ends.

// hintValue names us, by our ID, the revision that created our key, and our token. Either is
// ownRevision if it is that of the hint.
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

// noteShare has the next share for the folder find this one.
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
