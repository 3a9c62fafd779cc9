package main

import (
	"context"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// A lock in memory is one of a single process, and this story has two. So the parent serves its own to the child, over
// net/rpc on the loopback interface. With any other URL nothing of this file is used: there is a server then.

const (
	memoryScheme = "mem://"
	sharedScheme = "shared" // of the child
)

// Memory is the parent's side: its methods are those of driver.Claim, as net/rpc wants them.
type Memory struct {
	driver *memory.Driver
	leases sync.Map // Grant → driver.Lease
}

// Grant is how the child calls a lease.
type Grant struct {
	Name  string
	Token uint64
}

// Extension is how long a lease is to last.
type Extension struct {
	Grant
	TTL time.Duration
}

// serveMemory serves the locks of a mem:// URL until stop is called, and returns the URL for the child.
func serveMemory(memURL string) (childURL string, stop func(), err error) {
	space, query, _ := strings.Cut(strings.TrimPrefix(memURL, memoryScheme), "?")
	server := rpc.NewServer()
	if err := server.Register(&Memory{driver: memory.NewDriver(memory.InSpace(strings.Trim(space, "/")))}); err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn) // until the child is gone
		}
	}()
	return sharedScheme + "://" + l.Addr().String() + "?" + query, func() { _ = l.Close() }, nil
}

// Request is a driver.Request of somebody who does not wait in a queue.
type Request struct {
	Name string
	TTL  time.Duration
}

// Ask is that of a driver.Claim, once.
func (m *Memory) Ask(req Request, token *uint64) error {
	claim := m.driver.Claim(driver.Request{Name: req.Name, TTL: req.TTL})
	_, err := claim.Ask(context.Background())
	if err == nil {
		*token = claim.Token()
		m.leases.Store(Grant{req.Name, *token}, claim)
	}
	return err
}

// Extend is that of a Lease.
func (m *Memory) Extend(e Extension, _ *struct{}) error {
	lease, found := m.leases.Load(e.Grant)
	if !found {
		return locker.ErrLost
	}
	return lease.(driver.Lease).Extend(context.Background(), e.TTL)
}

// Release is that of a Lease.
func (m *Memory) Release(g Grant, _ *struct{}) error {
	lease, found := m.leases.LoadAndDelete(g)
	if !found {
		return locker.ErrLost
	}
	return lease.(driver.Lease).Release(context.Background())
}

// registerShared is for the child, before it opens its URL.
func registerShared() {
	driver.Register(sharedScheme, func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		client, err := rpc.Dial("tcp", u.Hosts[0])
		if err != nil {
			return nil, err
		}
		return parent{client}, nil
	})
}

// parent is the Driver of the child. A reply is lost only if the parent has died, and with it all of its locks.
type parent struct{ rpc *rpc.Client }

func (p parent) call(method string, args, reply any) error {
	err := p.rpc.Call("Memory."+method, args, reply)
	for _, known := range []error{locker.ErrHeld, locker.ErrLost} {
		if err != nil && err.Error() == known.Error() { // its text is all that arrives
			return known
		}
	}
	return err
}

func (p parent) Claim(req driver.Request) driver.Claim {
	return &claim{parent: p, ttl: req.TTL, grant: Grant{Name: req.Name}}
}

func (p parent) Guarantees() locker.Guarantees { return memory.NewDriver().Guarantees() }

func (p parent) Close() error { return p.rpc.Close() }

type claim struct {
	parent parent
	ttl    time.Duration
	grant  Grant
	until  atomic.Pointer[time.Time]
}

// Ask asks the core to ask again and again: the child does not wait in the queue.
func (l *claim) Ask(context.Context) (time.Duration, error) {
	sent := time.Now()
	err := l.parent.call("Ask", Request{l.grant.Name, l.ttl}, &l.grant.Token)
	if err == nil {
		l.last(sent, l.ttl)
	}
	return 0, err
}

// last notes that the lease lasts ttl, from before the request.
func (l *claim) last(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl)
	l.until.Store(&until)
}

func (l *claim) Token() uint64 { return l.grant.Token }

func (l *claim) Validity() time.Duration {
	if until := l.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

func (l *claim) Extend(_ context.Context, ttl time.Duration) error {
	sent := time.Now()
	err := l.parent.call("Extend", Extension{l.grant, ttl}, &struct{}{})
	if err == nil {
		l.last(sent, ttl)
	}
	return err
}

func (l *claim) Release(context.Context) error {
	if l.grant.Token == 0 {
		return nil // never granted
	}
	return l.parent.call("Release", l.grant, &struct{}{})
}
