package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

// The simulated nodes have the queue that a Redis server has with the scripts: both get the same random operations of several clients.
func TestWaitQueue_isWhatRedisHas(t *testing.T) {
	s := testserver.Redis(t)
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	steps := 900
	if testwait.Exhaustive() {
		steps = 36_000
	}
	for seed := uint64(0); steps > 0; seed++ {
		steps -= compareQueues(t, rdb, seed)
	}
}

// compareQueues makes one history, and returns its length. It is short: a waiter that has missed its turn has a connection replaced that is older than a
// second, and is not subscribed meanwhile.
func compareQueues(t *testing.T, rdb *goredis.Client, seed uint64) (steps int) {
	began := time.Now()
	q := queueComparison{t: t, rdb: rdb, r: rand.New(rand.NewPCG(seed, 1)), name: fmt.Sprint("q", seed)}
	q.proposal = uint64(began.Add(20 * time.Second).UnixMicro())
	defer func() {
		for _, d := range q.drivers {
			_ = d.Close()
		}
	}()
	for range 3 {
		d, err := redis.NewDriver(rdb)
		require.NoError(t, err)
		q.drivers = append(q.drivers, d)
	}
	for ; steps < 60 && time.Since(began) < time.Second/2; steps++ {
		q.step()
	}
	return steps
}

// queueComparison has the queue of a server and that of a register side by side.
type queueComparison struct {
	t        *testing.T
	rdb      *goredis.Client
	drivers  []*redis.Driver
	r        *rand.Rand
	name     string
	proposal uint64

	reg       register
	owners    uint64
	asks      []*inBoth // all that have not been released
	processes [3]bool   // that have been told to wait
	did       []string

	mu    sync.Mutex
	woken []uint64 // by the server, in order
	told  []uint64 // by the register
}

// inBoth is an owner.
type inBoth struct {
	entry   inQueue
	waits   quorum.Candidate // nil: it does not wait
	real    quorum.Candidate
	granted bool
	token   uint64
}

func (q *queueComparison) request() driver.Request {
	return driver.Request{Name: q.name, TTL: time.Hour}
}

func (q *queueComparison) step() {
	switch n := q.r.IntN(10); {
	case n < 3 || len(q.asks) == 0:
		q.enters()
	case n < 4:
		q.proposes()
	case n < 5:
		q.expires()
	case n < 7:
		q.releases(q.r.IntN(len(q.asks)))
	default:
		if p := q.asks[q.r.IntN(len(q.asks))]; !p.granted {
			q.ask(p)
		}
	}
	q.wakes()
}

// enters has a new owner ask that waits.
func (q *queueComparison) enters() {
	q.owners++
	k := q.r.IntN(len(q.drivers))
	owner := q.owners
	p := &inBoth{entry: inQueue{owner: owner, place: uint64(1_000_000 + q.r.IntN(1_000_000)), process: uint64(k + 1)}}
	p.entry.tell = func() { q.told = append(q.told, owner) }
	p.waits = q.drivers[k].Candidate(q.request(), p.entry.place, func(kept bool) {
		if kept {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.woken = append(q.woken, owner)
		}
	})
	p.real = p.waits
	q.asks = append(q.asks, p)
	q.ask(p)
}

func (q *queueComparison) ask(p *inBoth) {
	q.note("%d of client %d asks, at %d", p.entry.owner, p.entry.process, p.entry.place)
	a := q.reg.wait(0, p.entry, 1, q.proposal)
	earlier, err := p.waits.Propose(q.t.Context(), q.proposal)
	q.same(a.granted, err)
	if !a.granted {
		require.Equal(q.t, a.earlier, earlier, "an earlier one has it, after %v", q.did)
		q.subscribed(int(p.entry.process - 1))
		return
	}
	p.granted, p.token = true, a.accepted
	require.Equal(q.t, a.accepted, p.real.Token(), "after %v", q.did)
}

// subscribed waits until a client is: the server passes over waiters of one that is not.
func (q *queueComparison) subscribed(process int) {
	q.processes[process] = true
	want := 0
	for _, p := range q.processes {
		if p {
			want++
		}
	}
	testwait.Patience(20*time.Second).Until(q.t, "the clients are subscribed", func() bool {
		channels, err := q.rdb.PubSubChannels(context.Background(), "{"+q.name+"}:*").Result()
		return err == nil && len(channels) == want
	})
}

// proposes asks for the lock once.
func (q *queueComparison) proposes() {
	q.owners++
	q.note("%d asks once", q.owners)
	granted, accepted := q.reg.take(0, q.owners, 1, q.proposal)
	l, err := claims.Propose(q.t.Context(), q.drivers[0], q.request(), q.proposal)
	q.same(granted, err)
	if granted {
		require.Equal(q.t, accepted, l.Token(), "after %v", q.did)
		q.asks = append(q.asks, &inBoth{entry: inQueue{owner: q.owners}, real: l, granted: true, token: accepted})
	}
}

func (q *queueComparison) releases(k int) {
	p := q.asks[k]
	q.asks = slices.Delete(q.asks, k, k+1)
	q.note("%d releases", p.entry.owner)
	ok := q.reg.release(0, p.entry.owner, p.token, false)
	q.same(ok, p.real.Release(q.t.Context()))
}

// expires lets the hold or the claim expire that there is.
func (q *queueComparison) expires() {
	q.note("expire")
	q.reg.until, q.reg.keptUntil = 0, 0
	require.NoError(q.t, q.rdb.PExpire(q.t.Context(), "{"+q.name+"}", time.Minute).Err())
}

// wakes compares who was woken. It has a claim last: the test may be slow.
func (q *queueComparison) wakes() {
	if q.reg.kept.owner != 0 && q.reg.keptUntil > 0 {
		require.NoError(q.t, q.rdb.PExpire(q.t.Context(), "{"+q.name+"}", time.Hour).Err())
	}
	testwait.Patience(20*time.Second).Until(q.t, fmt.Sprintf("%v are woken, after %v", q.told, q.did), func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.woken) >= len(q.told)
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Equal(q.t, q.told, q.woken, "woken, after %v", q.did)
}

func (q *queueComparison) note(format string, args ...any) {
	q.did = append(q.did, "\n"+fmt.Sprintf(format, args...))
}

func (q *queueComparison) same(ok bool, err error) {
	q.t.Helper()
	if err != nil && !errors.Is(err, locker.ErrHeld) {
		require.ErrorIs(q.t, err, locker.ErrLost)
	}
	require.Equal(q.t, ok, err == nil, "after %v: the register says %v, Redis %v", q.did, ok, err)
}
