package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// List implements driver.Lister, on whichever session there is. ZooKeeper has no pages: the first one reads the names of all locks under the Client's prefix,
// held or released within the last minute, in one request. Then each page reads the queues of some. Names of more than 512 characters,
// escaped, are hashes, and it counts them.
func (d *Driver) List(prefix string) driver.Pager {
	prefix, begins := split(prefix)
	w := &walk{driver: d, prefix: prefix, begins: begins}
	return w.page
}

// walk goes through the locks under a prefix.
type walk struct {
	driver         *Driver
	prefix, begins string
	read           bool     // the names were
	left           []string // escaped
}

func (w *walk) page(ctx context.Context) (page driver.Page, err error) {
	err = w.driver.onAnySession(ctx, func(s *session, o *outage.Outage) error {
		page, err = w.pageOn(ctx, s, o)
		return err
	})
	return page, err
}

func (w *walk) pageOn(ctx context.Context, s *session, o *outage.Outage) (page driver.Page, err error) {
	root := rootOf(w.driver.chroot, w.prefix)
	if !w.read {
		var all view
		err = o.Ask(ctx, func(ctx context.Context) (err error) {
			all, err = s.latest(ctx, reads, root)
			return err
		})
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return page, err
		}
		w.read, w.left = true, slices.DeleteFunc(all.children, w.isOther)
	}
	some := w.left[:min(len(w.left), nodesPerCheck)]
	var held []bool
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		held, err = s.anyInQueue(ctx, root, some)
		return err
	})
	if err != nil {
		return page, err
	}
	for i, escaped := range some {
		if !held[i] {
			continue
		}
		if name, ok := unescape(escaped); ok {
			page.Names = append(page.Names, w.prefix+":"+name)
		} else {
			page.Unnamed++
		}
	}
	w.left = w.left[len(some):]
	page.Last = len(w.left) == 0
	return page, nil
}

// isOther reports whether a child of the prefix's node is no lock that may belong to the list.
func (w *walk) isOther(escaped string) bool {
	name, ok := unescape(escaped)
	return !strings.HasPrefix(escaped, hashMark) && !(ok && strings.HasPrefix(name, w.begins))
}

// anyInQueue reports for each of the nodes of locks below root whether somebody stands in its queue. It reads them at the same time.
func (s *session) anyInQueue(ctx context.Context, root string, nodes []string) ([]bool, error) {
	held, errs := make([]bool, len(nodes)), make([]error, len(nodes))
	var read sync.WaitGroup
	for i, node := range nodes {
		read.Go(func() {
			var v view
			v, errs[i] = s.view(ctx, reads, root+"/"+node)
			held[i] = len(inQueue(v.children)) > 0
		})
	}
	read.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
	return held, nil
}
