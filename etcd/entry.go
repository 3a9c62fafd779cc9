package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
)

// How a contender takes the lock: the recipe of etcd's package concurrency. Each row is one
// transaction.
//
//	enqueue   no tombstone, no key of ours   read the latest key of the folder, and put ours on the session
//	try       and the folder is empty        put ours; otherwise read the oldest key: ErrHeld, by whom
//	again     our key is there               a reply was lost: read it
//	look      while waiting                  read our key, and the one ahead, or the latest before ours
//	release   our key, of our revision       delete it; in doubt, also put a tombstone
//
// The oldest key of a folder has the lock; the revision that created it is the token. A waiter is
// woken when the key ahead of its own is gone (wake.go), and reads again: its session may have ended,
// or the key ahead may have given up.
//
// Invariants. (1) Create revisions order the queue, and nobody can be put before us. (2) Revisions,
// and so tokens, increase. (3) A put needs its key to be absent, and its owner to have no
// tombstone: so a retry has no second effect, and a late put none at all. (4) An owner is reused only
// if no request of it may still arrive.
//
// Lost reply to a put: the key may be there, or may appear for as long as the session lives, also
// after a delete that finds nothing. So the release of a doubtful entry puts a tombstone on the same
// session, in the same transaction: the late put fails on it, or on the session's end. A session with
// many tombstones is retired. Lost reply to a release: it is repeated. If it finds no key, and no
// tombstone of a ForceRelease, an earlier try has deleted it, unless the session had ended: so the
// session is renewed before the release counts as a success.
//
// Folders are read with their values: asked for keys only, etcd 3.7 also leaves out their leases
// (https://github.com/etcd-io/etcd/issues/22209), by which contenders are distinguished from
// foreign keys. The server reads a whole folder to find its latest key, and sends that one.

// errRemoved: the session lasts, and our key is not there.
var errRemoved = errors.New("somebody removed our key from the queue")

// entry is a key in the queue of its name, on a session, from before it is put until it is removed.
type entry struct {
	driver.Request
	place

	session *session
	left    atomic.Bool // see driver.Leaver

	ahead string       // the key before ours in the last read, or our own; owned by the asking goroutine
	seen  atomic.Int64 // the revision of that read

	watch int64 // number of the watch of our key, or of that ahead; the watcher's mutex guards it

	created  atomic.Int64 // the revision that created the key; 0 if that is not known
	token    atomic.Int64 // of a share, when it is settled; or 0
	granted  atomic.Bool  // the share was settled by settleTogether: the next Ask need not read
	doubtful atomic.Bool  // a put has an unknown outcome, or may still arrive
	releases atomic.Int64 // that were sent

	mu       sync.Mutex // guards what follows
	hinted   string     // the hint's value if it names this share, or empty
	released bool       // a release has begun
	finished bool
	result   error // of the release once it is finished: nil or ErrLost
}

// enqueue puts the key, and returns that ahead of it, if there is one. If it does not wait it puts the
// key only if nothing is ahead, and otherwise returns ErrHeld.
func (e *entry) enqueue(ctx context.Context, waits bool) (ahead string, err error) {
	if e.Shared {
		return e.enqueueShared(ctx, waits)
	}
	var conditions []clientv3.Cmp
	var then, otherwise []clientv3.Op
	put, known := e.put(plainValue(e.Metadata)), e.session.knownHolder(e.folder)
	switch {
	case waits:
		conditions = []clientv3.Cmp{e.alive(), e.absent()}
		then, otherwise = []clientv3.Op{e.earlier(clientv3.WithLimit(1)), put}, []clientv3.Op{e.own()}
	case known == nil:
		conditions = []clientv3.Cmp{e.alive(), e.empty()}
		then, otherwise = []clientv3.Op{put}, []clientv3.Op{e.own(), e.oldest()}
	default:
		// The oldest key of a queue stays the oldest while it is there. The server evaluates conditions
		// in order, and so reads no range meanwhile.
		key := string(known.Key)
		gone := clientv3.Compare(clientv3.CreateRevision(key), "!=", known.CreateRevision)
		conditions = []clientv3.Cmp{e.alive(), gone, e.empty()}
		first := clientv3.OpTxn([]clientv3.Cmp{gone}, []clientv3.Op{e.oldest()}, []clientv3.Op{clientv3.OpGet(key)})
		then, otherwise = []clientv3.Op{put}, []clientv3.Op{e.own(), first}
	}
	resp, err := e.take(ctx, conditions, then, otherwise)
	switch {
	case err != nil:
		return "", err
	case resp.Succeeded:
		if last := first(resp.Responses[0]); last == nil || e.waitsFor(last) {
			return string(last.GetKey()), nil
		}
		return e.readPredecessor(ctx, e.ahead)
	case e.created.Load() != 0: // an earlier request has put it
		return e.readPredecessor(ctx, e.ahead)
	case waits: // there is a tombstone
		return "", errRemoved
	}
	answer := resp.Responses[1]
	if within := answer.GetResponseTxn(); within != nil {
		answer = within.Responses[0]
	}
	switch oldest := first(answer); {
	case oldest == nil:
		return "", errRemoved
	case e.waitsFor(oldest):
		e.session.noteHolder(e.folder, oldest)
		return "", &driver.HeldError{Holder: contenderAt(oldest, e.folder).Participant}
	default: // a foreign key is the oldest: from within the queue the predecessor shows
		return e.enqueue(ctx, true)
	}
}

func (e *entry) put(value string) clientv3.Op {
	return clientv3.OpPut(e.key, value, clientv3.WithLease(e.session.id))
}

// earlier reads the keys of possible predecessors, the latest first.
func (e *entry) earlier(opts ...clientv3.OpOption) clientv3.Op {
	end := clientv3.GetPrefixRangeEnd(e.folder)
	if e.Shared {
		end = e.folder + readerMark
	}
	return clientv3.OpGet(e.folder, append(opts, clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))...)
}

// waitsFor reports whether kv, a key before ours, is that of a predecessor.
func (e *entry) waitsFor(kv *mvccpb.KeyValue) bool {
	return kv != nil && isContender(kv, e.folder) && !(e.Shared && parseValue(kv).shared)
}

// take makes a transaction that puts our key, or reads it first of all: an earlier one may have put it.
func (e *entry) take(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	txn := clientv3.OpTxn(conditions, then, otherwise)
	resp, err := ask(ctx, e.session.driver, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := e.session.driver.kv.Do(ctx, txn)
		if err != nil && !refused(err) && !e.doubtful.Swap(true) {
			e.session.countTombstone() // which the release will put
		}
		return resp.Txn(), err
	})
	if err != nil {
		return nil, e.endIfGone(err)
	}
	e.seen.Store(resp.Header.Revision)
	if hasPut(resp) {
		e.created.Store(resp.Header.Revision)
	} else if kv := first(resp.Responses[0]); kv != nil {
		e.created.Store(kv.CreateRevision)
	}
	return resp, nil
}

// hasPut reports whether a transaction of take, or one nested in it, has put our key.
func hasPut(resp *clientv3.TxnResponse) bool {
	return slices.ContainsFunc(resp.Responses, func(r *etcdserverpb.ResponseOp) bool {
		within := r.GetResponseTxn()
		return r.GetResponsePut() != nil || within != nil && hasPut((*clientv3.TxnResponse)(within))
	})
}

// commit makes a transaction that does not create our key.
func (e *entry) commit(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := e.session.driver.commit(ctx, conditions, then, otherwise)
	return resp, e.endIfGone(err)
}

// endIfGone returns err, and ends the session if that says that it is gone.
func (e *entry) endIfGone(err error) error {
	if sessionEnded(err) {
		e.session.End()
	}
	return err
}

// readPredecessor returns the key that is ahead of ours, if there is one. Otherwise a share's token is
// settled. It fails if our own is gone. While the key that was ahead is there, no folder is read. After
// that the latest key before ours is, and all of them if that one is foreign.
func (e *entry) readPredecessor(ctx context.Context, ahead string) (string, error) {
	created := e.created.Load()
	for limit := int64(1); ; {
		otherwise := []clientv3.Op{clientv3.OpGet(e.key), e.earlier(clientv3.WithMaxCreateRev(created-1), clientv3.WithLimit(limit))}
		if e.Shared {
			otherwise = append(otherwise, clientv3.OpGet(e.hint()))
		}
		resp, err := e.commit(ctx, isBefore(ahead, created), []clientv3.Op{e.own(), clientv3.OpGet(ahead)}, otherwise)
		if err != nil {
			return "", err
		}
		e.seen.Store(resp.Header.Revision)
		own := first(resp.Responses[0])
		if !e.isKey(own) {
			return "", errRemoved
		}
		found := resp.Responses[1].GetResponseRange().GetKvs()
		if i := slices.IndexFunc(found, e.waitsFor); i >= 0 {
			return string(found[i].Key), nil
		}
		switch {
		case resp.Succeeded: // the key ahead has become a share
			ahead = e.key
		case len(found) > 0 && limit > 0:
			limit = 0
		case !e.Shared || e.token.Load() != 0:
			return "", nil
		default:
			if err := e.settleToken(ctx, own, first(resp.Responses[2])); err != nil || e.token.Load() != 0 {
				return "", err
			}
		}
	}
}

// isBefore is true if a key is there that was created before a revision: an owner may have been
// reused, at the end of the queue.
func isBefore(key string, created int64) []clientv3.Cmp {
	revision := clientv3.CreateRevision(key)
	return []clientv3.Cmp{clientv3.Compare(revision, ">", 0), clientv3.Compare(revision, "<", created)}
}

// isKey reports whether kv, found at the key, is the one that we put there.
func (e *entry) isKey(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.CreateRevision == e.created.Load()
}

// first returns the first key of an answer, or nil if it has none.
func first(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// release removes the key, and prevents a put in doubt. It makes no request if there is neither.
func (e *entry) release(ctx context.Context) error {
	created, doubtful := e.created.Load(), e.doubtful.Load()
	e.mu.Lock()
	over := e.finished
	e.released = true
	e.mu.Unlock()
	if e.token.Load() != 0 { // from now on it may be gone: no other is to be put beside it
		e.session.forgetShare(e.folder, e.key)
	}
	if over || created == 0 && !doubtful {
		return e.finish(nil)
	}
	resp, err := ask(ctx, e.session.driver, func(ctx context.Context) (*clientv3.TxnResponse, error) { return e.remove(ctx, created, doubtful) })
	switch {
	case sessionEnded(err):
		return e.finish(driver.ErrLost)
	case err != nil:
		return err
	case resp.Succeeded || created == 0:
		return e.finish(nil)
	case forced(resp):
		e.session.countTombstone()
		return e.finish(driver.ErrLost)
	case e.releases.Load() == 1:
		return e.finish(driver.ErrLost)
	}
	// An earlier try has removed it, unless the session had ended.
	switch err := e.session.renew(ctx); {
	case sessionEnded(err):
		return e.finish(driver.ErrLost)
	case err != nil:
		return err
	default:
		return e.finish(nil)
	}
}

// remove is the transaction of a release. If the key is not there, a tombstone that is there is read
// and kept: it may be that of a ForceRelease.
func (e *entry) remove(ctx context.Context, created int64, doubtful bool) (*clientv3.TxnResponse, error) {
	d, del := e.session.driver, clientv3.OpDelete(e.key)
	then, otherwise := []clientv3.Op{del}, []clientv3.Op{clientv3.OpGet(e.tombstone)}
	if doubtful {
		mark := clientv3.OpPut(e.tombstone, "", clientv3.WithLease(e.session.id))
		then, otherwise = append(then, mark), append(otherwise, del, clientv3.OpTxn([]clientv3.Cmp{e.alive()}, []clientv3.Op{mark}, nil))
	}
	e.releases.Add(1)
	e.mu.Lock()
	hinted := e.hinted
	e.mu.Unlock()
	if hinted != "" {
		named := clientv3.Compare(clientv3.Value(e.hint()), "=", hinted)
		then = append(then, clientv3.OpTxn([]clientv3.Cmp{named}, []clientv3.Op{clientv3.OpDelete(e.hint())}, nil))
	}
	resp, err := d.kv.Do(ctx, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(e.key), "=", created)}, then, otherwise))
	if doubtful && errors.Is(err, rpctypes.ErrNoSpace) {
		// The tombstone has to wait for space. Those behind the key do not: its owner is not reused.
		_, _ = d.cli.Delete(ctx, e.key)
	}
	return resp.Txn(), err
}

// leaving reports whether the entry has ended, or may be about to by a release of our own.
func (e *entry) leaving() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finished || e.releases.Load() > 0
}

// finish leaves the session after a release that had that result. It returns the first result.
func (e *entry) finish(result error) error {
	e.mu.Lock()
	if e.finished {
		defer e.mu.Unlock()
		return e.result
	}
	e.finished, e.result = true, result
	e.mu.Unlock()
	if !e.doubtful.Load() && (result == nil || e.created.Load() == 0) {
		e.session.returnOwner(e.owner)
	}
	e.session.watcher.remove(e)
	e.session.Leave(e)
	return result
}
