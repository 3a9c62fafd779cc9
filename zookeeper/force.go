package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// The data of a lock's node are empty, or name the contenders whose nodes the latest ForceReleases
// have removed: forced <number> <owner>-<number> … An owner whose Unlock was sent twice finds out
// by them that it was not it who removed its node. Before them stands the largest number of those
// that are no longer named: one that came before it, or with it, cannot tell.
const (
	forcedMark  = "forced"
	forcedKnown = 8 // names that are kept
)

// ForceRelease implements driver.ForceReleaser: it reads the queue, and removes the first node in one step with a note for its owner. It compares
// the ID alone, which no other hold ever has. The user needs the rights to delete children of the lock's node, and to write to that.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	if shown.Holder.ID == "" && len(shown.Shares) > 0 {
		return d.forceShares(ctx, name, shown)
	}
	if shown.Holder.ID == "" {
		return fmt.Errorf("%w: ZooKeeper knows a hold by the ID of its holder, and the State has none", driver.ErrUnsupported)
	}
	return d.onAnySession(ctx, func(s *session, o *outage.Outage) error {
		return s.force(ctx, o, parentOf(d.chroot, name), shown.Holder.ID)
	})
}

// forceShares ends the shares that are shown, one after the other, of which some may have ended.
func (d *Driver) forceShares(ctx context.Context, name string, shown driver.State) error {
	ended, last := false, driver.ErrNotHeld
	for _, share := range shown.Shares {
		err := d.ForceRelease(ctx, name, driver.State{Held: true, Holder: share})
		switch {
		case err == nil:
			ended = true
		case errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrHeld):
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

// force removes node, if it is the first in the queue of parent.
func (s *session) force(ctx context.Context, o *outage.Outage, parent, node string) error {
	owner, ok := parseContender(node)
	for {
		var at registry
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			at, err = s.registry(ctx, parent)
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return driver.ErrNotHeld
		case err != nil:
			return err
		case ok && slices.Contains(at.forced, owner.id()):
			return nil // by an earlier request of ours that was not answered
		case at.first == "":
			return driver.ErrNotHeld
		case !slices.Contains(at.holders, node):
			return &driver.HeldError{Holder: driver.Participant{ID: at.first}}
		}
		err = o.Ask(ctx, func(ctx context.Context) error { return s.evict(ctx, parent, at, owner) })
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}

// registry is what the node of a lock has.
type registry struct {
	first   string   // in the queue
	holders []string // the first, or the shares that no writer is before
	forced  []string
	dropped int32 // the largest number of those that are no longer among forced; -1: there are none
	others  bool  // the data are not ours, and stay
	version int32 // of the data
}

func (s *session) registry(ctx context.Context, parent string) (registry, error) {
	return call(ctx, s, reads, func(conn *zk.Conn) (at registry, err error) {
		if _, err := conn.Sync(parent); err != nil {
			return at, err
		}
		data, stat, err := conn.Get(parent)
		if err != nil {
			return at, err
		}
		children, _, err := conn.Children(parent)
		if queue := inQueue(children); err == nil && len(queue) > 0 {
			slices.SortFunc(queue, compare)
			at.first = queue[0].name
			for _, c := range holders(queue) {
				at.holders = append(at.holders, c.name)
			}
		}
		at.version = stat.Version
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

// names reports whether a ForceRelease has removed the node of a contender, or may have.
func (r *registry) names(c contender) bool {
	return c.number <= r.dropped || slices.Contains(r.forced, c.id())
}

// evict removes the node of one that holds, and notes that.
func (s *session) evict(ctx context.Context, parent string, at registry, holder contender) error {
	remove := &zk.DeleteRequest{Path: parent + "/" + holder.name, Version: -1}
	note := []byte(at.with(holder))
	_, err := call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
		if at.others {
			return conn.Multi(remove)
		}
		return conn.Multi(&zk.SetDataRequest{Path: parent, Data: note, Version: at.version}, remove)
	})
	return err
}

// forced reports whether a ForceRelease has removed our node, or may have: a node of the lock that has gone since does not tell.
func (l *lease) forced(ctx context.Context) (bool, error) {
	at, err := l.session.registry(ctx, l.parent)
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	l.mu.Lock()
	names := []string{l.path, l.to}
	l.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool {
		own, ok := parseContender(path.Base(name))
		return ok && at.names(own)
	}), err
}
