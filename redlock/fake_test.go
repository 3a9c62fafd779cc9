package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

var errRefused = errors.New("connection refused")

// fakeNode is a node whose answers a test decides. It is a register that answers at once, but for what is set.
type fakeNode struct {
	node0
	addr string

	mu      sync.Mutex
	reg     register
	err     error         // of every request
	delay   time.Duration // of every answer
	silent  bool          // answers nothing before wake, nor when a context ends
	short   time.Duration // taken off the TTL of a grant, whose request arrived late
	denies  bool          // that it has any lock, and that it is free
	heeds   bool          // ends a request with its context
	wake    chan struct{}
	traced  any // what the context of the latest request has
	owners  uint64
	count   [verbs]int
	batched int
	closed  atomic.Bool
}

func newFakes(n int) ([]*fakeNode, []driver.Driver) {
	var fakes []*fakeNode
	var nodes []driver.Driver
	for i := range n {
		f := &fakeNode{addr: string(rune('a'+i)) + ":1", wake: make(chan struct{})}
		fakes = append(fakes, f)
		nodes = append(nodes, f)
	}
	return fakes, nodes
}

func newFakeDriver(t *testing.T, n int, opts ...DriverOption) (*Driver, []*fakeNode) {
	t.Helper()
	fakes, nodes := newFakes(n)
	d, err := NewDriver(nodes, opts...)
	require.NoError(t, err)
	return d, fakes
}

func (f *fakeNode) set(change func(*fakeNode)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// resume ends silence.
func (f *fakeNode) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		f.silent = false
		close(f.wake)
	}
}

// held reports whether the node has a lock.
func (f *fakeNode) held() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reg.left(time.Now().UnixNano())
}

func (f *fakeNode) run(ctx context.Context, v verb, script func(r *register, now int64) bool) error {
	f.mu.Lock()
	f.count[v]++
	f.traced = ctx.Value(ctxKey{})
	err, delay, silent, heeds := f.err, f.delay, f.silent, f.heeds
	f.mu.Unlock()
	if silent {
		<-f.wake
	}
	if heeds {
		if clock.Sleep(ctx, delay) != nil {
			return ctx.Err()
		}
	} else {
		time.Sleep(delay)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.denies || !script(&f.reg, time.Now().UnixNano()) {
		return locker.ErrLost
	}
	return nil
}

func (f *fakeNode) Address() string { return f.addr }

func (f *fakeNode) Close() error {
	if f.closed.Swap(true) {
		panic("closed twice")
	}
	return nil
}

func (f *fakeNode) Propose(ctx context.Context, req driver.Request, token uint64) (driver.RaisableLease, error) {
	f.mu.Lock()
	f.owners++
	l := &registerLease{run: f.run, owner: f.owners, until: time.Now().Add(req.TTL - f.short)}
	f.mu.Unlock()
	err := f.run(ctx, propose, func(r *register, now int64) (ok bool) {
		var accepted uint64
		ok, accepted = r.take(now, l.owner, int64(req.TTL), token)
		l.token.Store(accepted)
		return ok
	})
	switch {
	case errors.Is(err, locker.ErrLost):
		return nil, locker.ErrHeld
	case err != nil:
		return nil, err
	default:
		return l, nil
	}
}

func (f *fakeNode) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	f.set(func(f *fakeNode) { f.batched++ })
	return extendEach(ctx, leases, ttl)
}

func (f *fakeNode) Wait(req driver.Request, place uint64, woken func(bool)) driver.WaitingLease {
	f.mu.Lock()
	f.owners++
	l := &registerLease{run: f.run, owner: f.owners}
	f.mu.Unlock()
	ask := func(ctx context.Context, script func(bool, *register, int64)) (bool, error) {
		err := f.run(ctx, propose, func(r *register, now int64) bool { script(true, r, now); return true })
		if errors.Is(err, locker.ErrLost) { // it denies everything
			return false, locker.ErrHeld
		}
		return mayHaveRun(err), err
	}
	return newPlace(l, req, place, woken, func() time.Duration { return 0 }, ask)
}
