package zookeeper_test

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// wire counts the requests that go to a server, by the library's operation codes, and how often
// something was sent after an answer had come.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	ops   map[int32]int
	turns int
	spoke bool // the server, last
	wg    sync.WaitGroup
}

const (
	opPing   = 11
	opCreate = 1
	opDelete = 2
	opExists = 3
	opGet    = 4
	opSync   = 9
	opWatch  = -opGet // of a waiter, and of a hold that has lasted for a second
	opList   = 12
	opMulti  = 14
)

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{Listener: listener, to: to, ops: map[int32]int{}}
	w.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp4", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.wg.Go(func() { w.carry(client, server, false) })
			w.wg.Go(func() { w.carry(server, client, true) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.wg.Wait()
	})
	return w
}

// carry takes packets from one side to the other: four bytes of length each, and in a request's the
// transaction's number and the operation's.
func (w *wire) carry(from, to net.Conn, reply bool) {
	defer to.Close()
	for first := true; ; first = false {
		packet := make([]byte, 4, 512)
		if _, err := io.ReadFull(from, packet); err != nil {
			return
		}
		if string(packet) == "srvr" || first && string(packet) == "Zook" { // the question for the version, which is no packet, and its answer
			_, _ = to.Write(packet)
			_, _ = io.Copy(to, from)
			return
		}
		packet = append(packet, make([]byte, binary.BigEndian.Uint32(packet))...)
		if _, err := io.ReadFull(from, packet[4:]); err != nil {
			return
		}
		if !first {
			w.count(packet, reply)
		}
		if _, err := to.Write(packet); err != nil {
			return
		}
	}
}

func (w *wire) count(packet []byte, reply bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	xid := int32(binary.BigEndian.Uint32(packet[4:]))
	switch {
	case xid == -2: // a ping, or its answer
	case reply:
		w.spoke = true
	default:
		op := int32(binary.BigEndian.Uint32(packet[8:]))
		if op == opGet && packet[len(packet)-1] != 0 {
			op = opWatch
		}
		w.ops[op]++
		if w.spoke {
			w.turns++
		}
		w.spoke = false
	}
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

func (w *wire) url() string { return "zookeeper://" + w.Addr().String() }

func TestCounts(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	w := newWire(t, s.Addr())
	look := direct(t, s.Addr())
	c := openURL(t, w.url(), "ttl=1m", locker.WithoutRenewal())
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
	w := newWire(t, testserver.SharedZooKeeper(t).Addr())
	c := openURL(t, w.url(), "ttl=1m", locker.WithoutRenewal())
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
	assert.InDelta(t, 2, ops[opList], 1, "right behind the creation, and after the data; but for one that overtook the creation")
	ops = took(second.RLock)
	assert.Equal(t, 1, ops[opCreate])
	assert.Zero(t, ops[opGet])
	assert.Equal(t, 1, ops[opMulti])
	assert.LessOrEqual(t, ops[opList], 2)
	assert.Equal(t, map[int32]int{opDelete: 1}, took(second.Unlock))
	assert.Equal(t, map[int32]int{opDelete: 1}, took(first.Unlock))

	const herd = 50
	look, waiting := direct(t, w.to), make([]<-chan error, herd)
	require.NoError(t, first.Lock(t.Context()))
	for i := range waiting {
		waiting[i] = async(func() error { return c.RWMutex("x").RLock(t.Context()) })
	}
	eventually(t, "they wait", func() bool { return len(queue(t, look, "x")) == 1+herd })
	w.take()
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
	s := testserver.SharedZooKeeper(t)
	w := newWire(t, s.Addr())
	m := openURL(t, w.url(), "ttl=1m", locker.WithoutRenewal()).Mutex("x")
	waiter := openURL(t, "zookeeper://"+s.Addr(), "ttl=1m", locker.WithoutRenewal()).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	lists := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ops[opList]
	}
	before := lists()
	wanted := m.Wanted()
	eventually(t, "it has read the queue", func() bool { return lists() == before+1 })
	select {
	case <-wanted:
		t.Fatal("nobody waits")
	case <-time.After(50 * time.Millisecond):
	}
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	require.NoError(t, await(t, async(func() error { <-wanted; return nil })))
	assert.Equal(t, before+2, lists())
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, await(t, waiting))
	require.NoError(t, waiter.Unlock(t.Context()))
}
