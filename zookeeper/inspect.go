package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// Inspect implements driver.Inspector, on whichever session there is: it has the server catch up with its leader, reads the queue,
// and then the nodes in it. How long the holder's session lasts ZooKeeper does not tell. The holder's token is known as long
// as nobody has come or gone since the holder came, be it in vain. When nobody holds the lock none is known.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	ttl := outage.TTL(ctx, sessionTimeout)
	o := newOutage(ttl, unheard)
	for {
		state, err := d.inspect(ctx, o, parentOf(d.chroot, name))
		if !errors.Is(err, errSessionEnded) {
			return state, err
		}
		if err := clock.Sleep(ctx, outage.Pause(ttl)); err != nil {
			return driver.State{}, err
		}
	}
}

func (d *Driver) inspect(ctx context.Context, o *outage.Outage, parent string) (state driver.State, err error) {
	o.Explain = explain(func() error { return d.trouble(d.readerTTL()) })
	var s *session
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		s, err = d.reader(ctx)
		return err
	})
	if err != nil {
		return state, err
	}
	o.Explain = explain(s.trouble)
	var seen view
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		seen, err = s.latest(ctx, parent)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode): // nobody has held it for a while
		return state, nil
	case err != nil:
		return state, err
	}
	queue := inOrder(seen.children)
	var nodes []node
	for some := range slices.Chunk(queue, nodesPerCheck) {
		err := o.Ask(ctx, func(ctx context.Context) error {
			found, err := s.readNodes(ctx, parent, some)
			nodes = append(nodes, found...)
			return err
		})
		if err != nil {
			return state, err
		}
	}
	for _, n := range nodes {
		state.Waiters = append(state.Waiters, driver.Participant{ID: n.name, Metadata: n.data})
	}
	if len(nodes) == 0 {
		return state, nil
	}
	state.Held, state.Holder, state.Waiters = true, state.Waiters[0], state.Waiters[1:]
	if first := nodes[0]; first.name == queue[0] && first.czxid == seen.pzxid {
		// The token is the pzxid that the holder saw, and its coming was the last change. But if it has yet to read what
		// it sees, right behind that, and another comes first, the token will be that one's.
		state.Token = uint64(seen.pzxid)
	}
	return state, nil
}

// readerTTL is that of a session which is made to read on: as for Clients that have chosen none, but that servers with a long
// tick may want more.
func (d *Driver) readerTTL() time.Duration { return max(sessionTimeout, ticksPerTTL*d.tick) }

// reader returns a session to read on, whatever its TTL is, and makes one if there is none.
func (d *Driver) reader(ctx context.Context) (*session, error) {
	if s, ok := d.sessions.Any(); ok {
		return s, nil
	}
	s, err := d.sessionFor(d.readerTTL(), true)
	if err != nil {
		return nil, err
	}
	err = s.Wait(ctx)
	return s, err
}

// latest is the children of parent when the leader was asked, or later: a follower may be behind.
func (s *session) latest(ctx context.Context, parent string) (view, error) {
	return call(ctx, s, reads, func(conn *zk.Conn) (view, error) {
		if _, err := conn.Sync(parent); err != nil {
			return view{}, err
		}
		return readView(conn, parent)
	})
}

// node is one that stands in a queue, and what is in it.
type node struct {
	name  string
	data  string
	czxid int64 // the transaction that made it
}

// readNodes reads children of parent at the same time. Who has left meanwhile is not among what it returns.
func (s *session) readNodes(ctx context.Context, parent string, names []string) ([]node, error) {
	nodes, errs := make([]node, len(names)), make([]error, len(names))
	var read sync.WaitGroup
	for i, name := range names {
		read.Go(func() {
			nodes[i], errs[i] = call(ctx, s, reads, func(conn *zk.Conn) (node, error) {
				data, stat, err := conn.Get(parent + "/" + name)
				if err != nil {
					return node{}, err
				}
				return node{name, string(data), stat.Czxid}, nil
			})
		})
	}
	read.Wait()
	var found []node
	for i, err := range errs {
		switch {
		case err == nil:
			found = append(found, nodes[i])
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
	}
	return found, nil
}
