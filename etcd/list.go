package etcd

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
)

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
