package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"

	"github.com/go-zookeeper/zk"
)

// lastNumber is the largest by which one holds or waits. The servers count the children that were ever made below a node, up to
// the largest int32. There they stop: each gets that number then, and their coming no longer moves the node's pzxid. Of
// requests in flight together some even get negative ones. What lies between is for those who come until the queue is empty.
const lastNumber = math.MaxInt32 - 1<<20

// counts reports whether the contender has a place in the queue: else it was refused, and is about to leave.
func (c contender) counts() bool { return 0 <= c.number && c.number <= lastNumber }

// errNumbered: there are no numbers left. They begin anew with the node.
var errNumbered = errors.New("the servers number children up to 2147483647, and here they are near that: wait until the queue is " +
	"empty and the servers have removed the node, which takes them a minute; if it stays, it is no container or has other children: delete it")

func numbered(parent string) error { return fmt.Errorf("%s: %w", parent, errNumbered) }

// refuse leaves the queue if our number is beyond the last.
func (l *lease) refuse(ctx context.Context) error {
	if c, ok := parseContender(path.Base(l.at())); !ok || c.counts() {
		return nil
	}
	l.session.driver.full.Store(l.parent, nil)
	if err := l.leave(ctx); err != nil {
		return err
	}
	return numbered(l.parent)
}

// vacant returns errNumbered while a node, in which somebody was refused, is the same: another child would keep the
// servers from removing it.
func (l *lease) vacant(ctx context.Context) error {
	d := l.session.driver
	if _, full := d.full.Load(l.parent); !full {
		return nil
	}
	next, err := call(ctx, l.session, reads, func(conn *zk.Conn) (uint32, error) {
		found, stat, err := conn.Exists(l.parent)
		if err != nil || !found {
			return 0, err
		}
		return created(stat), nil
	})
	if err == nil && next > lastNumber {
		err = numbered(l.parent)
	}
	if err == nil {
		d.full.Delete(l.parent)
	}
	return err
}

// created returns how many children were ever made: the number of the next. A stat counts those that were deleted, too (DataNode.copyStat).
func created(stat *zk.Stat) uint32 { return uint32(stat.Cversion+stat.NumChildren) / 2 }
