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
)

// The data of a lock's node are empty, or list the contenders whose nodes the latest ForceReleases
// have removed: forced <number> <owner>-<number> … From this list an owner whose Unlock was sent
// twice learns that its first Unlock has not removed its node. <number> is the largest of those that
// are no longer listed: for owners up to it, it is unknown who has removed the node.
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
		case !slices.ContainsFunc(at.holders, func(c contender) bool { return c.name == node }):
			return heldBy(at.holders[0].name)
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
	return call(ctx, k.session, reads, func(conn *zk.Conn) (at registry, err error) {
		if _, err := conn.Sync(k.parent); err != nil {
			return at, err
		}
		data, stat, err := conn.Get(k.parent)
		if err != nil {
			return at, err
		}
		children, _, err := conn.Children(k.parent)
		queue := inQueue(children)
		slices.SortFunc(queue, compare)
		at.holders, at.version = holders(queue), stat.Version
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
