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
func (d *Driver) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	err = d.onAnySession(ctx, func(s *session, o *outage.Outage) (err error) {
		state, err = s.inspect(ctx, o, parentOf(d.chroot, name))
		return err
	})
	return state, err
}

// onAnySession calls f with whichever session there is, and again if that ends meanwhile.
func (d *Driver) onAnySession(ctx context.Context, f func(*session, *outage.Outage) error) error {
	var s *session
	ttl := outage.TTL(ctx, sessionTimeout)
	o := newOutage(ttl, func() error { return s.failure() })
	for {
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			s, err = d.reader(ctx)
			return err
		})
		if err == nil {
			err = f(s, o)
		}
		if !errors.Is(err, errSessionEnded) {
			return err
		}
		if err := clock.Sleep(ctx, outage.Pause(ttl)); err != nil {
			return err
		}
	}
}

func (s *session) inspect(ctx context.Context, o *outage.Outage, parent string) (state driver.State, err error) {
	var seen view
	err = o.Ask(ctx, func(ctx context.Context) (err error) {
		seen, err = s.latest(ctx, reads, parent)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode): // nobody has held it for a while
		return state, nil
	case err != nil:
		return state, err
	}
	queue := inQueue(seen.children)
	slices.SortFunc(queue, compare)
	var nodes nodes
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
	if len(nodes) == 0 {
		return state, nil
	}
	left := nodes.queue()
	n := len(holders(left))
	if state.Held = true; left[0].shared {
		state.Shares = nodes[:n].participants()
	} else {
		state.Holder = nodes[0].participant()
	}
	state.Waiters = nodes[n:].participants()
	for _, c := range left[:n] { // of shares, all that are settled have the same
		state.Token = max(state.Token, c.token)
	}
	if first := nodes[0]; !left[0].shared && first.name == queue[0].name && first.czxid == seen.pzxid {
		// The token is the pzxid that the holder saw, and its coming was the last change. But if it has yet to read what
		// it sees, right behind that, and another comes first, the token will be that one's.
		state.Token = uint64(seen.pzxid)
	}
	return state, nil
}

// readerTTL returns that of a session which is made to read on: as for Clients that have chosen none, but that servers with a long
// tick may want more.
func (d *Driver) readerTTL() time.Duration { return max(sessionTimeout, ticksPerTTL*d.tick) }

// reader returns a session to read on, whatever its TTL is, and makes one if there is none.
func (d *Driver) reader(ctx context.Context) (*session, error) {
	if s, ok := d.sessions.Any(); ok {
		return s, nil
	}
	s, err := d.sessionFor(d.readerTTL(), true)
	if err == nil {
		err = s.Wait(ctx)
	}
	return s, err
}

// holders returns those at the head of a queue, which is in order, that hold the lock: a writer, or the shares that no writer is before.
func holders(queue []contender) []contender {
	writer := slices.IndexFunc(queue, func(c contender) bool { return !c.shared })
	if writer < 0 {
		return queue
	}
	return queue[:max(writer, min(1, len(queue)))]
}

type nodes []node

// queue returns the contenders whose nodes they are.
func (n nodes) queue() []contender {
	queue := make([]contender, len(n))
	for i := range n {
		queue[i], _ = parseContender(n[i].name)
	}
	return queue
}

func (n nodes) participants() (all []driver.Participant) {
	for _, one := range n {
		all = append(all, one.participant())
	}
	return all
}

func (n node) participant() driver.Participant {
	return driver.Participant{ID: n.name, Metadata: n.data}
}

// node is one that stands in a queue, and what is in it.
type node struct {
	name  string
	data  string
	czxid int64 // the transaction that made it
}

// readNodes reads children of parent at the same time. Those that have left meanwhile are not among what it returns.
func (s *session) readNodes(ctx context.Context, parent string, queue []contender) ([]node, error) {
	nodes, errs := make([]node, len(queue)), make([]error, len(queue))
	var read sync.WaitGroup
	for i, c := range queue {
		read.Go(func() {
			nodes[i], errs[i] = call(ctx, s, reads, func(conn *zk.Conn) (node, error) {
				data, stat, err := conn.Get(parent + "/" + c.name)
				if err != nil {
					return node{}, err
				}
				return node{c.name, string(data), stat.Czxid}, nil
			})
		})
	}
	read.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
	return slices.DeleteFunc(nodes, func(n node) bool { return n.name == "" }), nil
}
