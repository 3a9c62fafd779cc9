package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
)

// onAnySession calls f with whichever session there is, or one that is made for that, and with
// another if that had ended when nobody looked.
func (d *backend) onAnySession(ctx context.Context, f func(*session) error) (err error) {
	for range 2 {
		s, ok := d.sessions.Any()
		if err = nil; !ok {
			// Its TTL is as for Clients that have chosen none, but that servers with a long tick may want
			// more.
			if s, err = d.session(max(sessionTimeout, ticksPerTTL*d.tick), true); err == nil {
				err = s.started(ctx)
			}
		}
		if err == nil {
			err = f(s)
		}
		if !errors.Is(err, errSessionEnded) {
			break
		}
	}
	return err
}

// Inspect implements driver.Operator, on any session that is open: it makes the server catch up
// with its leader, then reads the queue, and then the nodes in the queue. ZooKeeper does not tell
// how long the holder's session lasts. The holder's token is known only if nobody has joined or
// left the queue since the holder came, not even for an attempt that failed. If nobody holds the
// lock, no token is known.
func (d *backend) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	err = d.onAnySession(ctx, func(s *session) (err error) {
		state, err = lock{s, parentOf(d.chroot, name)}.inspect(ctx)
		return err
	})
	return state, err
}

func (k lock) inspect(ctx context.Context) (state driver.State, err error) {
	seen, err := k.latest(ctx)
	switch {
	case errors.Is(err, zk.ErrNoNode): // nobody has held it for a while
		return state, nil
	case err != nil:
		return state, err
	}
	all := inQueue(seen.children)
	slices.SortFunc(all, compare)
	queue, err := k.read(ctx, all)
	if err != nil || len(queue) == 0 {
		return state, err
	}
	first, n := queue[0], len(holders(queue))
	if state.Held = true; first.shared {
		state.Shares = participants(queue[:n])
	} else {
		state.Holder = participants(queue)[0]
	}
	state.Waiters = participants(queue[n:])
	for _, c := range queue[:n] { // of shares, all that are settled have the same
		state.Token = max(state.Token, c.token)
	}
	if !first.shared && first.name == all[0].name && first.czxid == seen.pzxid {
		// The token is the pzxid that the holder saw, and its coming was the last change. But if it has
		// yet to read what it sees, right behind that, and another comes first, the token will be that
		// one's.
		state.Token = uint64(seen.pzxid)
	}
	return state, nil
}

// read returns contenders with what is in their nodes, without those that have left meanwhile.
func (k lock) read(ctx context.Context, queue []contender) ([]contender, error) {
	found := slices.Clone(queue)
	for some := range slices.Chunk(found, nodesPerCheck) {
		err := each(len(some), func(i int) (err error) {
			c := some[i]
			some[i], err = call(ctx, k.session, reads, func(conn *zk.Conn) (contender, error) {
				data, stat, err := conn.Get(k.parent + "/" + c.name)
				if err != nil {
					return contender{}, err
				}
				c.data, c.czxid = string(data), stat.Czxid
				return c, nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(found, func(c contender) bool { return c.name == "" }), nil
}

func participants(queue []contender) (all []driver.Participant) {
	for _, c := range queue {
		all = append(all, driver.Participant{ID: c.name, Metadata: c.data})
	}
	return all
}

// List implements driver.Operator, on whichever session there is. ZooKeeper has no pages. The Pager's
// first page reads, in one request, the names of all locks under the Client's prefix that are held,
// or were released within the last minute. Then each page reads the queues of some of these locks.
// A name of more than 512 characters, after escaping, is stored as a hash. List counts these names,
// but cannot return them.
func (d *backend) List(prefix string) driver.Pager {
	prefix, begins := sessions.Split(prefix)
	w := &walk{prefix: prefix, begins: begins}
	return func(ctx context.Context) (page driver.Page, err error) {
		err = d.onAnySession(ctx, func(s *session) (err error) {
			page, err = w.page(ctx, lock{s, rootOf(d.chroot, prefix)})
			return err
		})
		return page, err
	}
}

// walk goes through the locks under a prefix.
type walk struct {
	prefix, begins string
	read           bool     // the names were
	left           []string // escaped
}

// page returns the next of them, which are children of root.
func (w *walk) page(ctx context.Context, root lock) (page driver.Page, err error) {
	if !w.read {
		all, err := root.latest(ctx)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return page, err
		}
		w.read, w.left = true, slices.DeleteFunc(all.children, w.isOther)
	}
	some := w.left[:min(len(w.left), nodesPerCheck)]
	held := make([]bool, len(some))
	err = each(len(some), func(i int) error {
		v, err := lock{root.session, root.parent + "/" + some[i]}.view(ctx)
		held[i] = len(inQueue(v.children)) > 0
		return err
	})
	if err != nil {
		return page, err
	}
	for i, escaped := range some {
		if !held[i] {
			continue
		}
		if name, ok := sessions.Unescape(escaped, escape); ok {
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
	name, ok := sessions.Unescape(escaped, escape)
	return !strings.HasPrefix(escaped, sessions.HashMark) && !(ok && strings.HasPrefix(name, w.begins))
}
