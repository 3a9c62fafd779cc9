package testserver

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// announcements stands before the election port of one member and changes in what the others send the one
// thing that leads around the proxies: who dials says first where it listens itself, and a member with a
// higher id hangs up and calls back there (QuorumCnxManager.handleConnection), whatever its own
// configuration says. Here that becomes the address that this configuration has.
type announcements struct {
	to      *ZooKeeperServer
	network *zooKeeperNetwork
	addr    string

	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
	conns map[net.Conn]struct{}
}

func newAnnouncements(t testing.TB, to *ZooKeeperServer, network *zooKeeperNetwork) *announcements {
	t.Helper()
	a := &announcements{to: to, network: network, conns: make(map[net.Conn]struct{})}
	var listener net.Listener
	withPort(t, "election of "+to.name, func(port int) (err error) {
		a.addr = loopback(port)
		listener, err = net.Listen("tcp4", a.addr)
		return err
	})
	a.wg.Go(func() { a.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		a.mu.Lock()
		a.ended = true
		for conn := range a.conns {
			_ = conn.Close()
		}
		a.mu.Unlock()
		a.wg.Wait()
	})
	return a
}

func (a *announcements) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		a.wg.Go(func() { a.serve(conn) })
	}
}

// serve forwards a connection until either end closes it.
func (a *announcements) serve(peer net.Conn) {
	a.keep(peer)
	defer a.drop(peer)
	announcement, err := a.read(peer)
	if err != nil {
		return
	}
	member, err := net.Dial("tcp", loopback(a.to.electionPort))
	if err != nil {
		return
	}
	a.keep(member)
	defer a.drop(member)
	if _, err := member.Write(announcement); err != nil {
		return
	}
	var wg sync.WaitGroup
	forward := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.Close()
		_ = src.Close()
	}
	wg.Go(func() { forward(member, peer) })
	wg.Go(func() { forward(peer, member) })
	wg.Wait()
}

// keep has conn closed at the end of the test, unless it is dropped before.
func (a *announcements) keep(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns[conn] = struct{}{}
	if a.ended {
		_ = conn.Close()
	}
}

func (a *announcements) drop(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, conn)
	_ = conn.Close()
}

// read reads QuorumCnxManager's initial message: a version of the protocol and the sender's id, of
// eight bytes each, and the sender's addresses with their length in four. It returns the message with
// other addresses.
func (a *announcements) read(peer net.Conn) ([]byte, error) {
	const fixed, longest = 20, 2048
	message := make([]byte, fixed)
	if _, err := io.ReadFull(peer, message); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(message[16:])
	if length > longest {
		return nil, fmt.Errorf("an address of %d bytes", length)
	}
	if _, err := io.CopyN(io.Discard, peer, int64(length)); err != nil {
		return nil, err
	}
	id := int(binary.BigEndian.Uint64(message[8:]))
	// The way back, which there is once all members have been started.
	path := a.network.paths[[2]int{a.to.id, id}]
	if path == nil {
		return nil, fmt.Errorf("no member %d", id)
	}
	addr := path.election.Addr()
	binary.BigEndian.PutUint32(message[16:], uint32(len(addr)))
	return append(message, addr...), nil
}
