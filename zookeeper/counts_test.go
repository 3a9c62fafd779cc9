package zookeeper_test

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/zookeeper"
)

// wire is the connections of a Client. It counts requests, by the library's operation codes, and how
// often one was sent after a reply had come.
type wire struct {
	mu    sync.Mutex
	ops   map[int32]int
	turns int
	spoke bool // the server, last
}

const (
	opPing   = 11
	opCreate = 1
	opDelete = 2
	opGet    = 4
	opSync   = 9
	opWatch  = -opGet // of a waiter, and of a hold that has lasted for a second
	opList   = 12
	opMulti  = 14
)

func (w *wire) open(t testing.TB, addr string) *locker.Client {
	t.Helper()
	w.ops = map[int32]int{}
	d, err := zookeeper.NewDriver([]string{addr}, zookeeper.Tick(serverTick), zookeeper.Dialer(w.dial))
	require.NoError(t, err)
	return testwait.Closed(locker.New(d, locker.WithPrefix(space(t)), locker.WithTTL(time.Minute), locker.WithoutRenewal()))(t)
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: conn, wire: w}, nil
}

type tapped struct {
	net.Conn
	wire  *wire
	begun bool // what begins a session was sent, which is no request
}

// Write sends a packet: four bytes of length, and in a request the number of it and of the operation.
func (c *tapped) Write(packet []byte) (int, error) {
	w := c.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.begun {
		op := int32(binary.BigEndian.Uint32(packet[8:]))
		if op == opGet && packet[len(packet)-1] != 0 {
			op = opWatch
		}
		if op != opPing {
			if w.ops[op]++; w.spoke {
				w.turns++
			}
			w.spoke = false
		}
	}
	c.begun = true
	return c.Conn.Write(packet)
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.spoke = c.wire.spoke || n > 0
	return n, err
}

// take returns what was counted since it was called last. Watches, of which there may be one at any
// time, are left out.
func (w *wire) take() (ops map[int32]int, turns int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ops, opWatch)
	ops, turns = w.ops, w.turns
	w.ops, w.turns = map[int32]int{}, 0
	return ops, turns
}

func TestCounts(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	w, look := new(wire), direct(t, s.Addr())
	c := w.open(t, s.Addr())
	m := c.Mutex("x")
	pair := func() {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	}
	const pairs = 30
	fewest := math.MaxInt
	for range 5 { // a busy machine sends apart what goes together, and never the other way round
		pair()
		w.take()
		for range pairs {
			pair()
		}
		ops, turns := w.take()
		assert.Equal(t, pairs, ops[opCreate])
		assert.Equal(t, pairs, ops[opDelete])
		assert.InDelta(t, pairs, ops[opList], 3, "it goes right behind the creation, but for the odd one that overtook it")
		t.Log(ops, turns)
		if fewest = min(fewest, turns); fewest <= 2*pairs+4 {
			break
		}
	}
	assert.InDelta(t, 2*pairs, fewest, 4, "two round trips")

	require.NoError(t, m.Lock(t.Context()))
	w.take()
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	ops, _ := w.take()
	assert.Equal(t, map[int32]int{opList: 2, opSync: 1}, ops, "a TryLock in vain writes nothing")
	require.NoError(t, m.Extend(t.Context()))
	w.take()
	require.NoError(t, m.Extend(t.Context()))
	ops, _ = w.take()
	assert.Equal(t, map[int32]int{opMulti: 1}, ops)

	next := c.Mutex("x")
	waiting := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(queue(t, look, "x")) == 2 && w.ops[opWatch] == 1
	})
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	ops, _ = w.take()
	assert.Equal(t, 1, ops[opCreate])
	assert.Equal(t, 1, ops[opDelete])
	assert.InDelta(t, 2, ops[opList], 1, "the first look, and that after the event")
	require.NoError(t, next.Unlock(t.Context()))
}

func TestCounts_ofShares(t *testing.T) {
	t.Parallel()
	s, w := testserver.SharedZooKeeper(t), new(wire)
	c := w.open(t, s.Addr())
	first, second := c.RWMutex("x"), c.RWMutex("x")
	took := func(call func(context.Context) error) map[int32]int {
		w.take()
		require.NoError(t, call(t.Context()))
		ops, _ := w.take()
		return ops
	}
	require.NoError(t, first.Lock(t.Context())) // there are a session, and the node of the lock
	assert.Equal(t, map[int32]int{opMulti: 1}, took(first.Downgrade))
	assert.Equal(t, map[int32]int{opDelete: 1}, took(first.Unlock))
	ops := took(first.RLock)
	assert.Equal(t, 1, ops[opCreate])
	assert.Equal(t, 1, ops[opGet])
	assert.Equal(t, 1, ops[opMulti])
	assert.InDelta(t, 1, ops[opList], 1, "right behind the creation, but for one that overtook it")
	ops = took(second.RLock)
	assert.Equal(t, 1, ops[opCreate])
	assert.Zero(t, ops[opGet])
	assert.Equal(t, 1, ops[opMulti])
	assert.LessOrEqual(t, ops[opList], 2)
	assert.Equal(t, map[int32]int{opDelete: 1}, took(second.Unlock))
	assert.Equal(t, map[int32]int{opDelete: 1}, took(first.Unlock))

	const herd = 50
	look, waiting := direct(t, s.Addr()), make([]<-chan error, herd)
	require.NoError(t, first.Lock(t.Context()))
	for i := range waiting {
		waiting[i] = async(func() error { return c.RWMutex("x").RLock(t.Context()) })
	}
	eventually(t, "they wait", func() bool { return len(queue(t, look, "x")) == 1+herd })
	ops, _ = w.take()
	assert.Less(t, ops[opList], herd, "those that come together read the queue together")
	require.NoError(t, first.Unlock(t.Context()))
	for _, done := range waiting {
		require.NoError(t, await(t, done))
	}
	ops, _ = w.take()
	assert.Less(t, ops[opList], herd, "they read the queue together")
	assert.Less(t, ops[opMulti], 2*herd)
	t.Log(ops)
}

// A holder that asks whether somebody waits reads the queue once, and once more when one comes.
func TestCounts_ofWanted(t *testing.T) {
	t.Parallel()
	s, w := testserver.SharedZooKeeper(t), new(wire)
	harness.Wanted(t, w.open(t, s.Addr()).Mutex("x"), openURL(t, s.URL(), "ttl=1m").Mutex("x"), func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ops[opList]
	})
}
