package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// prune is how many watches there are before those are looked for that have fired unseen.
const prune = 64

// watch returns what gets an event, and is closed, when the node changes or is gone; nil if it is gone already. The library
// cannot take a watch back, and adds one at each call. So there is one a node, for all who come to wait for it, one after the
// other, and it is kept until it has fired.
func (s *session) watch(ctx context.Context, node string) (<-chan zk.Event, error) {
	s.mu.Lock()
	gone := s.watches[node]
	s.mu.Unlock()
	if gone != nil {
		return gone, nil
	}
	return call(ctx, s, reads, func(conn *zk.Conn) (<-chan zk.Event, error) {
		_, _, gone, err := conn.GetW(node) // ExistsW would watch for a node to come that never does
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		s.keepWatch(node, gone)
		return gone, nil
	})
}

func (s *session) keepWatch(node string, gone <-chan zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) >= prune && len(s.watches)&(len(s.watches)-1) == 0 {
		for other, ch := range s.watches {
			select {
			case <-ch: // it is closed, or will be in a moment
				delete(s.watches, other)
			default:
			}
		}
	}
	s.watches[node] = gone
}

// unwatch forgets a watch that has fired.
func (s *session) unwatch(node string, gone <-chan zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[node] == gone {
		delete(s.watches, node)
	}
}
