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

// Memory is the parent's side: its methods are those of driver.Driver and driver.Lease, as net/rpc wants them.
type Memory struct {
	driver driver.Driver
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

// Acquire is that of a Driver.
func (m *Memory) Acquire(req driver.Request, token *uint64) error {
	lease, err := m.driver.Acquire(context.Background(), req)
	if err == nil {
		*token = lease.Token()
		m.leases.Store(Grant{req.Name, *token}, lease)
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

func (p parent) Acquire(_ context.Context, req driver.Request) (driver.Lease, error) {
	l := &lease{parent: p}
	l.grant.Name = req.Name
	sent := time.Now()
	if err := p.call("Acquire", req, &l.grant.Token); err != nil {
		return nil, err
	}
	l.last(sent, req.TTL)
	return l, nil
}

func (p parent) Guarantees() locker.Guarantees { return memory.NewDriver().Guarantees() }

func (p parent) Close() error { return p.rpc.Close() }

type lease struct {
	parent parent
	grant  Grant
	until  atomic.Pointer[time.Time]
}

// last notes that the lease lasts ttl, from before the request.
func (l *lease) last(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl)
	l.until.Store(&until)
}

func (l *lease) Token() uint64 { return l.grant.Token }

func (l *lease) Validity() time.Duration { return time.Until(*l.until.Load()) }

func (l *lease) Extend(_ context.Context, ttl time.Duration) error {
	sent := time.Now()
	err := l.parent.call("Extend", Extension{l.grant, ttl}, &struct{}{})
	if err == nil {
		l.last(sent, ttl)
	}
	return err
}

func (l *lease) Release(context.Context) error {
	return l.parent.call("Release", l.grant, &struct{}{})
}
