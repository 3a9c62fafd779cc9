package testserver

import (
	"net"
	"sync"
	"testing"

	"github.com/go-locker/locker/internal/netfault"
)

// EtcdPartitionable puts a network between the members of a cluster that [EtcdGroup.Isolate] cuts. It takes
// Linux.
func EtcdPartitionable() EtcdOption {
	return func(o *etcdOptions) { o.network = true }
}

// etcdNetwork is between the members of a cluster. All of them know a member under one address, so that a gate stands
// at each, which finds out who calls.
type etcdNetwork struct {
	servers []*EtcdServer
	wg      sync.WaitGroup
	gates   []net.Listener
	links   [][]*netfault.Proxy // from, to
}

func newEtcdNetwork(t testing.TB, servers []*EtcdServer) *etcdNetwork {
	t.Helper()
	if !knowsOwners {
		t.Skip("testserver: who makes a connection can be found out on Linux alone")
	}
	n := &etcdNetwork{servers: servers}
	t.Cleanup(n.close) // registered after the servers' clean-up, and so run before it
	return n
}

// open lets members be called at ports, those that they advertise.
func (n *etcdNetwork) open(ports []int) error {
	n.links = make([][]*netfault.Proxy, len(n.servers))
	for from := range n.links {
		for _, to := range n.servers {
			n.links[from] = append(n.links[from], netfault.New(loopback(to.peerPort)))
		}
	}
	for i, port := range ports {
		gate, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			n.close()
			return err
		}
		n.gates = append(n.gates, gate)
		n.wg.Go(func() { n.accept(gate, i) })
	}
	return nil
}

func (n *etcdNetwork) close() {
	for _, gate := range n.gates {
		_ = gate.Close()
	}
	n.gates = nil
	for _, row := range n.links {
		for _, l := range row {
			l.Close()
		}
	}
	n.wg.Wait()
}

func (n *etcdNetwork) accept(gate net.Listener, to int) {
	for {
		conn, err := gate.Accept()
		if err != nil {
			return
		}
		n.wg.Go(func() {
			from := n.caller(conn)
			if from < 0 { // gone already, with what it had begun
				_ = conn.Close()
				return
			}
			n.links[from][to].Serve(conn.(*net.TCPConn))
		})
	}
}

// caller is the place of the member at the other end, or -1.
func (n *etcdNetwork) caller(conn net.Conn) int {
	inode := inodeOf(conn.RemoteAddr().(*net.TCPAddr).Port, conn.LocalAddr().(*net.TCPAddr).Port)
	for i, s := range n.servers {
		if pid := s.pid.Load(); pid > 0 && inode != "" && hasSocket(int(pid), inode) {
			return i
		}
	}
	return -1
}

// cut has nothing that one of the two sends reach the other, and neither hear of that. Healed, they have
// to connect anew.
func (n *etcdNetwork) cut(a, b int, cut bool) {
	for _, l := range []*netfault.Proxy{n.links[a][b], n.links[b][a]} {
		l.DropRequests(cut)
		l.DropReplies(cut)
		if !cut {
			l.ResetConns()
		}
	}
}

// Isolate cuts a member off from all others, both ways and in silence; clients still reach it. It
// needs EtcdPartitionable.
func (g *EtcdGroup) Isolate(s *EtcdServer) { g.isolate(s, true) }

// Heal undoes Isolate, for all.
func (g *EtcdGroup) Heal() {
	for _, s := range g.servers {
		g.isolate(s, false)
	}
}

func (g *EtcdGroup) isolate(s *EtcdServer, cut bool) {
	g.t.Helper()
	if g.network == nil {
		g.t.Fatal("testserver: the cluster was not started with EtcdPartitionable")
	}
	s.isolated = cut
	for i, member := range g.servers {
		for j, other := range g.servers {
			if member == s && other != s {
				g.network.cut(i, j, cut)
			}
		}
	}
}
