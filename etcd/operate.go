package etcd

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
)

// Inspect implements driver.Operator: one request that reads the queue, and, if the lock is held,
// one for what is left of the holder's session, in whole seconds, rounded down. If the lock is
// shared, it makes one for each session. When nobody holds the lock no token is known.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	folder := folderOf(name)
	for {
		queue, _, err := d.readQueue(ctx, folder)
		if err != nil || len(queue) == 0 {
			return driver.State{}, err
		}
		state, lasts := sessions.State(queue), false
		if state.Left, lasts, err = d.left(ctx, sessions.Holders(queue)); lasts {
			return state, nil
		}
		if err == nil { // the session has ended since, and with it the hold; unless a member that is cut off says so
			err = clock.Sleep(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return driver.State{}, err
		}
	}
}

// left returns for how long the longest of the sessions lasts that the contenders are on, and
// whether any does.
func (d *backend) left(ctx context.Context, holders []contender) (longest time.Duration, lasts bool, err error) {
	asked := map[int64]bool{}
	for _, c := range holders {
		if asked[c.kv.Lease] {
			continue
		}
		asked[c.kv.Lease] = true
		left, err := ask(ctx, d, func(ctx context.Context) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
			resp, err := d.leases().LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: c.kv.Lease})
			return resp, rpctypes.Error(err)
		})
		if err != nil {
			return 0, false, err
		}
		if left.GetGrantedTTL() > 0 {
			// A new leader gives each session a little more, and one that is overdue has less than
			// nothing.
			longest, lasts = max(longest, time.Duration(min(left.GetTTL(), left.GetGrantedTTL()))*time.Second), true
		}
	}
	return longest, lasts, nil
}

// readQueue returns the contenders in a folder, the oldest first, and the revision at
// which they were there. Marks are in another folder, and a key is never there together with the
// mark of its owner.
func (d *backend) readQueue(ctx context.Context, folder string) (queue []contender, revision int64, err error) {
	resp, err := d.commit(ctx, nil, []clientv3.Op{readFolder(folder)}, nil)
	if err != nil {
		return nil, 0, err
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		if isContender(kv, folder) {
			queue = append(queue, contenderAt(kv, folder))
		}
	}
	return queue, resp.Header.Revision, nil
}

// readFolder reads the keys of a folder, the oldest first.
func readFolder(folder string) clientv3.Op {
	return clientv3.OpGet(folder, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// contender is who has a key in the folder of a lock.
type contender struct {
	sessions.Contender
	kv *mvccpb.KeyValue
}

// contenderAt returns the contender whose key in folder is kv.
func contenderAt(kv *mvccpb.KeyValue, folder string) contender {
	v, token := parseValue(kv), kv.CreateRevision
	if v.shared {
		token = v.token
	}
	who := driver.Participant{ID: string(kv.Key[len(folder):]), Metadata: v.metadata}
	return contender{sessions.Contender{Participant: who, Shared: v.shared, Token: uint64(token)}, kv}
}

// keysPerPage is how many keys a page reads, of holders, and of waiters as long as their lock fits
// on the page.
const keysPerPage = 1000

// List implements driver.Operator: a page is one request, which reads some keys in their order. A
// name of more than 512 characters, after escaping, is stored as a hash. List counts these names,
// but cannot return them.
func (d *backend) List(prefix string) driver.Pager {
	prefix, begins := sessions.Split(prefix)
	w := &walk{driver: d, prefix: prefix + ":"}
	w.addRange(w.prefix + escapeAll(begins))
	if begins != "" {
		w.addRange(w.prefix + sessions.HashMark)
	}
	return w.page
}

// walk goes through the keys of some ranges.
type walk struct {
	driver *backend
	prefix string
	ranges []keyRange // that are left
}

type keyRange struct{ from, to string }

func (w *walk) addRange(prefix string) {
	w.ranges = append(w.ranges, keyRange{prefix, clientv3.GetPrefixRangeEnd(prefix)})
}

func (w *walk) page(ctx context.Context) (page driver.Page, err error) {
	d, r := w.driver, &w.ranges[0]
	resp, err := d.commit(ctx, nil, []clientv3.Op{clientv3.OpGet(r.from, clientv3.WithRange(r.to), clientv3.WithLimit(keysPerPage))}, nil)
	if err != nil {
		return page, err
	}
	found := resp.Responses[0].GetResponseRange()
	last := w.read(found.Kvs, &page)
	switch {
	case !found.More:
		w.ranges = w.ranges[1:]
	case last != "": // behind all keys of that folder, which end with a slash and an owner
		r.from = strings.TrimSuffix(last, "/") + "0"
	default:
		r.from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	}
	page.Last = len(w.ranges) == 0
	return page, nil
}

// read adds the locks of keys, which are in their order, to page. It returns the folder that the
// last key is in, if that is of a lock which is on the page.
func (w *walk) read(keys []*mvccpb.KeyValue, page *driver.Page) (last string) {
	for _, kv := range keys {
		escaped, _, ok := strings.Cut(string(kv.Key[len(w.prefix):]), "/")
		folder := w.prefix + escaped + "/"
		if folder == last {
			continue
		}
		last = ""
		if !ok || !isContender(kv, folder) {
			continue
		}
		if name, ok := sessions.Unescape(escaped, escape); ok {
			page.Names = append(page.Names, w.prefix+name)
		} else if strings.HasPrefix(escaped, sessions.HashMark) {
			page.Unnamed++
		} else {
			continue
		}
		last = folder
	}
	return last
}

// forcedMark is the value of a mark that a ForceRelease has put. One that a contender puts itself
// has none.
const forcedMark = "forced"

// ForceRelease implements driver.Operator: a request that reads the queue, and one that
// removes the holder's key and puts a mark on the holder's session. Because of the mark, a request
// of the holder that is still under way cannot make the key again. If the holder's Unlock is sent
// twice, the second request finds no key. The mark shows whether ForceRelease, and not the first
// request, has removed the key. If the lock is shared, ForceRelease ends the Shares in shown, one
// after the other. If shown has a Holder instead, it ends the share with the ID of this Holder.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	folder := folderOf(name)
	for ended := false; !ended; {
		queue, _, err := d.readQueue(ctx, folder)
		if err != nil {
			return err
		}
		all, err := held(queue, shown)
		if err != nil {
			return err
		}
		for _, holder := range all {
			gone, err := d.evict(ctx, newPlace(name, holder.ID), holder.kv)
			if err != nil {
				return err
			}
			ended = ended || gone
		}
	}
	return nil
}

// evict reports whether it has ended the hold, or share, whose key is holder: else that has ended
// by itself.
func (d *backend) evict(ctx context.Context, at place, holder *mvccpb.KeyValue) (bool, error) {
	mark := clientv3.OpPut(at.tombstone, forcedMark, clientv3.WithLease(clientv3.LeaseID(holder.Lease)))
	resp, err := d.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(at.key), "=", holder.CreateRevision)},
		[]clientv3.Op{clientv3.OpDelete(at.key), mark}, []clientv3.Op{clientv3.OpGet(at.tombstone)})
	switch {
	case sessionEnded(err): // and the hold with it
		return false, nil
	case err != nil:
		return false, err
	default:
		return resp.Succeeded || forced(resp), nil // be it by an earlier request of ours that was not answered
	}
}

// held returns the holder that shown describes, or the shares.
func held(queue []contender, shown driver.State) (all []contender, err error) {
	if len(queue) == 0 {
		return nil, driver.ErrNotHeld
	}
	for _, c := range sessions.Holders(queue) {
		if describes(shown, c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, &driver.HeldError{Holder: queue[0].Participant}
	}
	return all, nil
}

// describes reports whether c, one that holds, is the holder or a share that is shown.
func describes(shown driver.State, c contender) bool {
	if shown.Token != 0 && shown.Token != c.Token { // an owner may have come back
		return false
	}
	if shown.Holder.ID != "" || len(shown.Shares) == 0 {
		return shown.Holder.ID == "" || shown.Holder.ID == c.ID
	}
	return slices.ContainsFunc(shown.Shares, func(p driver.Participant) bool { return p.ID == c.ID })
}

// forced reports whether a transaction that did not find a key found the mark of a ForceRelease,
// which it reads first then.
func forced(resp *clientv3.TxnResponse) bool {
	if resp.Succeeded {
		return false
	}
	mark := first(resp.Responses[0])
	return mark != nil && string(mark.Value) == forcedMark
}
