package etcd

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
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
//	first     there is no hint, and the queue is empty: the token is the revision of our key
//	enqueue   otherwise: put our key without a token, and settle it by one of the next rows when no writer
//	          is before it
//	hinted    the hint names a settled share: adopt its token
//	search    read the folder: adopt the token of a settled share, or else settle our token and that of
//	          the oldest share as the oldest's revision
//	together  the key that shares of our session have waited for is gone: the last of them settles its
//	          token, and the others adopt that, up to 100 in one transaction
//
// Search is a read and a transaction, together is several, each other row is one; so a share beside
// others of its session costs one to take and one to release. The first two compare that no writer
// is in the queue, the last three that our key is unchanged (no writer can come before it any
// more), and that the share whose token is taken is there, or unchanged if it is not settled. Of
// two shares that settle at once one fails, reads again, and sees the other's token. Why tokens
// agree and increase: docs/evidence/protocols.md. Lost reply: our own key has the token, if it was
// settled.
//
// The hint, a key beside the folder, only saves reads: it counts for nothing if its share is not there.

// enqueueShared is enqueue for a share. If no writer is in the queue it settles the token, too.
func (e *entry) enqueueShared(ctx context.Context, waits bool) (ahead string, err error) {
	hint, behind := e.hintValue(ownRevision, ownRevision), []clientv3.Cmp{e.alive(), e.absent()}
	if !waits {
		behind = append(behind, e.noWriter())
	}
	otherwise := []clientv3.Op{
		e.own(), e.earlier(clientv3.WithLimit(1)), clientv3.OpGet(e.hint()), clientv3.OpTxn(behind, []clientv3.Op{e.putShare("")}, nil),
	}
	if !waits {
		otherwise = append(otherwise, e.oldest())
	}
	// The server reads all keys for empty, and for oldest. Behind a writer, or beside a share that the
	// hint names, it does not evaluate empty.
	noHint := clientv3.Compare(clientv3.CreateRevision(e.hint()), "=", 0)
	conditions, then := []clientv3.Cmp{e.alive(), e.noWriter(), noHint, e.empty()}, []clientv3.Op{e.putShare(ownRevision), e.putHint(hint)}
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
		e.settleAs(known.token, "")
		return "", nil
	case resp.Succeeded:
		e.settleAs(e.created.Load(), hint)
		return "", nil
	}
	writer, hinted := first(resp.Responses[1]), first(resp.Responses[2])
	switch put := hasPut(resp); {
	case put && e.waitsFor(writer):
		return string(writer.Key), nil
	case put && writer == nil:
		own := &mvccpb.KeyValue{Value: []byte(shareValue("", "")), ModRevision: e.created.Load()}
		if err := e.settleToken(ctx, own, hinted); err != nil || e.token.Load() != 0 {
			return "", err
		}
		return e.readPredecessor(ctx, e.ahead)
	case e.created.Load() != 0:
		return e.readPredecessor(ctx, e.ahead)
	case waits || writer == nil: // there is a tombstone
		return "", errRemoved
	}
	if oldest := first(resp.Responses[4]); e.waitsFor(writer) && isContender(oldest, e.folder) {
		return "", &driver.HeldError{Holder: contenderAt(oldest, e.folder).Participant}
	}
	done()
	return e.enqueueShared(ctx, true)
}

func (e *entry) putShare(token string) clientv3.Op { return e.put(shareValue(token, e.Metadata)) }

// settleAs records our token, and the hint's value if that names us.
func (e *entry) settleAs(token int64, hinted string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hinted != "" {
		e.hinted = hinted
	}
	if e.token.Swap(token) == 0 && !e.released {
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
				e.settleAs(token, "")
				e.granted.Store(true)
			}
		}
	}
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
