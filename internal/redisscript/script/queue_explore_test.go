package script

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// queueModel explores the states that a few members and the server can reach.
type queueModel struct {
	t          *testing.T
	rdb        *goredis.Client
	members    []member
	lossless   bool                // no request or message is lost
	downgrades bool                // holds may become shares
	keys       map[string][]string // by the subscribed processes
	seen       map[string]int      // states, by their text
	worlds     []world
	next       [][]int // by state: its successors by steps that are progress
	from       []step  // by state: the step that reached it first
}

type step struct {
	state int
	event string
}

// lock returns the keys of a lock on whose channels just the processes listen that do so in w.
func (m *queueModel) lock(w *world) []string {
	var subscribed []string
	for i, c := range w.clients {
		if p := m.members[i].process; c.subscribed && !slices.Contains(subscribed, p) {
			subscribed = append(subscribed, p)
		}
	}
	name := strings.Join(subscribed, ",")
	if m.keys[name] != nil {
		return m.keys[name]
	}
	keys := Keys(m.t.Name() + " " + name)
	m.keys[name] = keys
	sub := testwait.Closed(m.rdb.Subscribe(m.t.Context()), nil)(m.t)
	for _, process := range subscribed {
		require.NoError(m.t, sub.Subscribe(m.t.Context(), keys[0]+":"+process))
		_, err := sub.Receive(m.t.Context())
		require.NoError(m.t, err)
	}
	go func() {
		for {
			if _, err := sub.Receive(context.Background()); err != nil {
				return
			}
		}
	}()
	return keys
}

// run has events happen in w, each by itself, and returns what each leads to.
func (m *queueModel) run(w *world, events []event) ([]*world, []error) {
	type read struct {
		reply *goredis.Cmd
		hash  *goredis.MapStringStringCmd
		ttl   *goredis.DurationCmd
		queue *goredis.ZSliceCmd
		all   *goredis.ZSliceCmd // shares
	}
	now := time.Now()
	ctx := m.t.Context()
	worlds, reads, errs := make([]*world, len(events)), make([]read, len(events)), make([]error, len(events))
	_, _ = m.rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, e := range events {
			n := w.copy()
			worlds[i] = n
			if e.before != nil {
				e.before(n)
			}
			if e.script == nil {
				continue
			}
			keys := m.lock(n)
			p.Del(ctx, keys...)
			if len(n.hash) > 0 {
				left := Keep + ttl
				if n.expired {
					left = Keep - ttl
				}
				p.HSet(ctx, keys[0], n.hash)
				if n.hash["seen"] != "" { // time does not pass here
					p.HSet(ctx, keys[0], "seen", now.UnixMicro())
				}
				p.PExpire(ctx, keys[0], left)
			}
			if len(n.queue) > 0 {
				p.ZAdd(ctx, keys[1], n.queue...)
			}
			for member, lasts := range n.readers {
				ends := now.Add(time.Hour)
				if !lasts {
					ends = now.Add(-time.Second)
				}
				p.ZAdd(ctx, keys[2], goredis.Z{Score: float64(ends.UnixMilli()), Member: member})
			}
			reads[i].reply = p.EvalSha(ctx, e.script.SHA.(string), keys, e.args...)
			reads[i].hash = p.HGetAll(ctx, keys[0])
			reads[i].ttl = p.PTTL(ctx, keys[0])
			reads[i].queue = p.ZRangeWithScores(ctx, keys[1], 0, -1)
			reads[i].all = p.ZRangeWithScores(ctx, keys[2], 0, -1)
		}
		return nil
	})
	for i, e := range events {
		n := worlds[i]
		if r := reads[i]; r.reply != nil {
			reply, err := r.reply.Result()
			require.NoError(m.t, err, e.name)
			n.hash, n.queue, n.expired = r.hash.Val(), r.queue.Val(), r.ttl.Val() <= Keep
			n.readers = map[string]bool{}
			for _, z := range r.all.Val() {
				n.readers[z.Member.(string)] = z.Score > float64(now.UnixMilli())
			}
			for j, me := range m.members {
				n.clients[j].claimed = n.clients[j].claimed || n.claimed(me.owner)
			}
			errs[i] = e.after(n, reply)
		}
		n.expired = n.expired && n.owner() != ""
		if errs[i] == nil {
			errs[i] = m.check(w, n)
		}
		n.settle()
	}
	return worlds, errs
}

// explore goes through all states, and returns the first thing that must not be, with the way there.
func (m *queueModel) explore() error {
	for _, s := range []*Script{Take, TakeShared, Release, Downgrade} {
		require.NoError(m.t, m.rdb.ScriptLoad(m.t.Context(), s.Source).Err())
	}
	start := &world{hash: map[string]string{}}
	for _, me := range m.members {
		start.clients = append(start.clients, client{owner: me.owner})
	}
	m.add(start, step{-1, ""})
	for state := 0; state < len(m.worlds); state++ {
		events := m.events(&m.worlds[state])
		worlds, errs := m.run(&m.worlds[state], events)
		for i, e := range events {
			if errs[i] != nil {
				return fmt.Errorf("%w, after:\n%s", errs[i], m.way(step{state, e.name}))
			}
			next := m.add(worlds[i], step{state, e.name})
			if e.progress && next != state {
				m.next[state] = append(m.next[state], next)
			}
		}
	}
	return m.stuck()
}

// add returns the number of a state, which may be a new one.
func (m *queueModel) add(w *world, from step) int {
	text := w.text()
	n, known := m.seen[text]
	if !known {
		n = len(m.worlds)
		m.seen[text] = n
		m.worlds, m.next, m.from = append(m.worlds, *w), append(m.next, nil), append(m.from, from)
	}
	return n
}

// way is how an event came about.
func (m *queueModel) way(to step) string {
	var names []string
	for ; to.state >= 0; to = m.from[to.state] {
		names = append(names, to.event)
	}
	slices.Reverse(names)
	return strings.Join(names, "\n")
}

// stuck returns an error if there is a state from which a waiter cannot come to hold by what happens of itself.
func (m *queueModel) stuck() error {
	for i, me := range m.members {
		if !me.waits() {
			continue
		}
		can := make([]bool, len(m.worlds))
		back := make([][]int, len(m.worlds))
		var pending []int
		for state, w := range m.worlds {
			for _, n := range m.next[state] {
				back[n] = append(back[n], state)
			}
			if can[state] = w.clients[i].phase == holding; can[state] {
				pending = append(pending, state)
			}
		}
		for len(pending) > 0 {
			state := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			for _, b := range back[state] {
				if !can[b] {
					can[b] = true
					pending = append(pending, b)
				}
			}
		}
		for state, w := range m.worlds {
			if w.clients[i].phase == waiting && m.alive(&w, i) && !can[state] {
				return fmt.Errorf("%s waits for ever, after:\n%s", me.owner, m.way(m.from[state]))
			}
		}
	}
	return nil
}

func TestQueueModel_everyOrderOfEvents(t *testing.T) {
	testwait.LeftToModels(t)
	t.Parallel()
	const lossless, downgrades = 1, 2
	for _, c := range []struct {
		name    string
		members []member
		how     int
	}{
		{"two processes", []member{first, other}, 0},
		{"one subscribed, one polls", []member{first, poller}, 0},
		{"two of one process", []member{first, second}, 0},
		{"two processes and a newcomer", []member{first, other, newcomer}, lossless},
		{"one subscribed, one polls, and a newcomer", []member{first, poller, newcomer}, lossless},
		{"three processes", []member{first, other, third}, lossless},
		{"a reader and a writer", []member{reader, third}, downgrades},
		{"two readers", []member{reader, otherReader}, 0},
		{"a reader that polls, and a writer", []member{pollsToRead, third}, downgrades},
		{"a reader and a writer of one process", []member{reader, ofTheReaders}, downgrades},
		{"two readers and a writer", []member{reader, otherReader, third}, downgrades | lossless},
		{"a reader, a writer and a visitor", []member{reader, third, visitor}, downgrades | lossless},
		{"a reader, a writer and a newcomer", []member{reader, third, newcomer}, lossless},
		{"a reader and two writers", []member{reader, other, third}, lossless},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "two processes" && c.name != "a reader and a writer" {
				testwait.OnlyNightly(t, "two processes, and a reader and a writer, meet most of it")
			}
			t.Parallel()
			m := &queueModel{
				t: t, members: c.members, lossless: c.how&lossless != 0, downgrades: c.how&downgrades != 0,
				rdb:  testwait.Closed(goredis.NewClient(&goredis.Options{Addr: testserver.Redis(t).Addr()}), nil)(t),
				keys: map[string][]string{}, seen: map[string]int{},
			}
			require.NoError(t, m.explore())
			t.Logf("%d states", len(m.worlds))
		})
	}
}
