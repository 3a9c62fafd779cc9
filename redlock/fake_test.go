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
)

var errAway = errors.New("connection refused")

// fakeNode is a node whose answers a test decides. It is a register that answers at once, but for what is set.
type fakeNode struct {
	addr string

	mu     sync.Mutex
	reg    register
	err    error         // of every request
	delay  time.Duration // of every answer
	silent bool          // answers nothing before wake, nor when a context ends
	short  time.Duration // taken off the TTL of a grant, whose request arrived late
	lapses bool          // denies that it has any lock
	heeds  bool          // ends a request with its context
	wake   chan struct{}
	traced any // what the context of the latest request has
	owners uint64
	proposed, extended, batched,
	raised, released int
	closed atomic.Bool
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

// held says whether the node has a lock.
func (f *fakeNode) held() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reg.left(time.Now().UnixNano())
}

func (f *fakeNode) do(ctx context.Context, count *int, script func(r *register, now int64) bool) (ran bool, err error) {
	f.mu.Lock()
	*count++
	f.traced = ctx.Value(ctxKey{})
	err, delay, silent, heeds := f.err, f.delay, f.silent, f.heeds
	f.mu.Unlock()
	if silent {
		<-f.wake
	}
	if heeds {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	} else {
		time.Sleep(delay)
	}
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lapses || !script(&f.reg, time.Now().UnixNano()) {
		err = locker.ErrLost
	}
	return true, err
}

func (f *fakeNode) Acquire(context.Context, driver.Request) (driver.Lease, error) { panic("not used") }
func (f *fakeNode) Guarantees() locker.Guarantees                                 { return nil }
func (f *fakeNode) Address() string                                               { return f.addr }

func (f *fakeNode) Close() error {
	if f.closed.Swap(true) {
		panic("closed twice")
	}
	return nil
}

func (f *fakeNode) Propose(ctx context.Context, req driver.Request, token uint64) (driver.RaisableLease, error) {
	f.mu.Lock()
	f.owners++
	l := &fakeLease{node: f, owner: f.owners, until: time.Now().Add(req.TTL - f.short)}
	f.mu.Unlock()
	_, err := f.do(ctx, &f.proposed, func(r *register, now int64) (ok bool) {
		var accepted uint64
		ok, accepted = r.take(now, l.owner, int64(req.TTL), token)
		l.token.Store(accepted)
		return ok
	})
	if errors.Is(err, locker.ErrLost) {
		err = locker.ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (f *fakeNode) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	f.set(func(f *fakeNode) { f.batched++ })
	for i, l := range leases {
		errs[i] = l.Extend(ctx, ttl)
	}
	return errs
}

type fakeLease struct {
	node  *fakeNode
	owner uint64
	until time.Time // by its grant
	token atomic.Uint64
}

func (l *fakeLease) Token() uint64           { return l.token.Load() }
func (l *fakeLease) Validity() time.Duration { return time.Until(l.until) }

func (l *fakeLease) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := l.node.do(ctx, &l.node.extended, func(r *register, now int64) bool { return r.extend(now, l.owner, int64(ttl)) })
	return err
}

func (l *fakeLease) Raise(ctx context.Context, token uint64) error {
	_, err := l.node.do(ctx, &l.node.raised, func(r *register, now int64) bool { return r.raise(now, l.owner, token) })
	if err == nil {
		l.token.Store(token)
	}
	return err
}

func (l *fakeLease) Release(ctx context.Context) error {
	_, err := l.node.do(ctx, &l.node.released, func(r *register, now int64) bool {
		return r.release(now, l.owner, l.Token(), false)
	})
	return err
}
