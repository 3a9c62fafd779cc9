package zookeeper

import (
	"context"
	"errors"
	"maps"

	"github.com/go-zookeeper/zk"
)

// prune is how many watches there are before those are looked for that have fired.
const prune = 64

// watch returns what gets an event, and is closed, when the node changes or is gone; nil if it is gone already. The library
// cannot take a watch back, and adds one at each call. So there is one a node, for all who come to wait for it, one after the
// other, until it has fired.
func (s *session) watch(ctx context.Context, node string) (<-chan zk.Event, error) {
	s.mu.Lock()
	gone := s.watches[node]
	s.mu.Unlock()
	if gone != nil && !fired(gone) {
		return gone, nil
	}
	return call(ctx, s, reads, func(conn *zk.Conn) (<-chan zk.Event, error) {
		_, _, gone, err := conn.GetW(node) // ExistsW would watch for a node to come that never does
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		if err == nil {
			s.keepWatch(node, gone)
		}
		return gone, err
	})
}

func (s *session) keepWatch(node string, gone <-chan zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.watches); n >= prune && n&(n-1) == 0 {
		maps.DeleteFunc(s.watches, func(_ string, gone <-chan zk.Event) bool { return fired(gone) })
	}
	s.watches[node] = gone
}

// fired reports whether a watch is closed, or will be in a moment.
func fired(gone <-chan zk.Event) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
