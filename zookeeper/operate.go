package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	state = sessions.State(queue)
	if first := queue[0]; !first.Shared && first.ID == all[0].ID && first.czxid == seen.pzxid {
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
				data, stat, err := conn.Get(k.parent + "/" + c.ID)
				if err != nil {
					return contender{}, err
				}
				c.Metadata, c.czxid = string(data), stat.Czxid
				return c, nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(found, func(c contender) bool { return c.ID == "" }), nil
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

// The data of a lock's node are empty, or list the contenders whose nodes the latest ForceReleases
// have removed: forced <number> <owner>-<number> … From this list an owner whose Unlock was sent
// twice learns that its first Unlock has not removed its node. <number> is the largest of those
// that are no longer listed: for owners up to it, it is unknown who has removed the node.
const (
	forcedMark  = "forced"
	forcedKnown = 8 // names that are kept
)

// ForceRelease implements driver.Operator. It reads the queue. Then, in one step, it removes
// the first node and writes a note for the owner of this node. It compares the ID alone, which no
// other hold ever has. The user needs the rights to delete children of the lock's node, and to
// write to the lock's node.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	shares := shown.Shares
	if shown.Holder.ID != "" {
		shares = []driver.Participant{shown.Holder}
	}
	if len(shares) == 0 {
		return fmt.Errorf("%w: ZooKeeper knows a hold by the ID of its holder, and the State has none", driver.ErrUnsupported)
	}
	ended, last := false, driver.ErrNotHeld
	for _, share := range shares { // one after the other, of which some may have ended
		err := d.onAnySession(ctx, func(s *session) error { return lock{s, parentOf(d.chroot, name)}.force(ctx, share.ID) })
		switch {
		case err == nil:
			ended = true
		case isAny(err, driver.ErrNotHeld, driver.ErrHeld):
			last = err
		default:
			return err
		}
	}
	if ended {
		return nil
	}
	return last
}

// force removes a node, if it is that of a holder.
func (k lock) force(ctx context.Context, node string) error {
	owner, ok := parseContender(node)
	for {
		at, err := k.registry(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return driver.ErrNotHeld
		case err != nil:
			return err
		case ok && slices.Contains(at.forced, owner.id()):
			return nil // by an earlier request of ours that was not answered
		case len(at.holders) == 0:
			return driver.ErrNotHeld
		case !slices.ContainsFunc(at.holders, func(c contender) bool { return c.ID == node }):
			return heldBy(at.holders[0].ID)
		}
		changes := []any{&zk.DeleteRequest{Path: k.parent + "/" + node, Version: -1}}
		if !at.others {
			changes = append(changes, &zk.SetDataRequest{Path: k.parent, Data: []byte(at.with(owner)), Version: at.version})
		}
		if _, err = k.session.multi(ctx, changes...); !isAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
			return err
		}
	}
}

// registry is what the node of a lock has.
type registry struct {
	holders []contender // the first of the queue, or the shares that no writer is before
	forced  []string
	dropped int32 // the largest number of those that are no longer among forced; -1: there are none
	others  bool  // the data are not ours, and stay
	version int32 // of the data
}

func (k lock) registry(ctx context.Context) (registry, error) {
	return synced(ctx, k, func(conn *zk.Conn) (at registry, err error) {
		data, stat, err := conn.Get(k.parent)
		if err != nil {
			return at, err
		}
		children, _, err := conn.Children(k.parent)
		queue := inQueue(children)
		slices.SortFunc(queue, compare)
		at.holders, at.version = sessions.Holders(queue), stat.Version
		at.parse(string(data))
		return at, err
	})
}

// parse reads the data of a lock's node.
func (r *registry) parse(data string) {
	words := strings.Fields(data)
	if r.dropped = -1; len(words) == 0 || words[0] != forcedMark {
		r.others = data != ""
		return
	}
	r.forced = words[1:]
	if len(r.forced) > 0 {
		if n, err := strconv.ParseInt(r.forced[0], 10, 32); err == nil {
			r.dropped, r.forced = int32(n), r.forced[1:]
		}
	}
}

// with returns the data with one more contender.
func (r *registry) with(c contender) string {
	known, dropped := append(slices.Clone(r.forced), c.id()), int64(r.dropped)
	for ; len(known) > forcedKnown; known = known[1:] {
		n, _ := strconv.ParseInt(known[0][strings.LastIndexByte(known[0], '-')+1:], 10, 32)
		dropped = max(dropped, n)
	}
	return fmt.Sprint(forcedMark, " ", dropped, " ", strings.Join(known, " "))
}
