package redisscript

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/internal/testwait"
)

// These tests take the queue through every order of events: the scripts themselves, on a real server, and clients that are
// made of a few variables each. From each state that can be reached each event is tried that can happen in it: requests whose
// replies come or are lost, or that arrive after their sender has given up; waiters that give up, hang or die; holds and
// claims that expire.

// member is what may ask for the lock. Each asks once in its life.
type member struct {
	owner   string
	process string // that listens; empty: it does not
}

func (m member) waits() bool { return strings.Contains(m.owner, "/") }

var (
	listener = member{"pP/a", "P"}
	other    = member{"pQ/b", "Q"}
	third    = member{"pS/e", "S"}
	looker   = member{"-R/c", ""}
	second   = member{"pP/d", "P"} // of the first one's process
	newcomer = member{"n", ""}     // does not wait
)

// phase is where a member is in its life.
type phase byte

const (
	idle      phase = iota
	waiting         // it asks until it is granted, or gives up
	holding         // and its deadline has not passed
	ended           // it held, and the deadline has passed
	releasing       // it has released once, and had no reply
	gone            // it has released, or given up
	crashed
)

// client is a member at some time.
type client struct {
	owner   string
	phase   phase
	token   int64
	place   uint64 // as it knows it; 0: not known
	seat    uint64 // its place as the server had it last; 0: it was never queued
	late    bool   // a request of it is still under way, though it has given up
	claimed bool   // the lock was claimed for it once: it may be told so at any time
	expired bool   // its hold has expired
	listens bool   // its process does
	excused bool   // it may be passed over: when it asked it did not listen, or came back after the lock was claimed for another
}

// world is a state of the server and of all members.
type world struct {
	hash    map[string]string
	expired bool // what the hash says of an owner is over
	queue   []goredis.Z
	clients []client
}

// event is what happens next: a script is run, or not, and then the world is changed.
type event struct {
	name     string
	progress bool // it happens by itself, sooner or later
	loss     bool // a request or a reply does not arrive, or late
	script   *Script
	args     []any
	before   func(*world)                    // changes a copy, before the script is run
	after    func(w *world, reply any) error // the same, and says what must not be
}

// queueModel explores.
type queueModel struct {
	t                *testing.T
	rdb              *goredis.Client
	members          []member
	lossless         bool // what is sent arrives
	acquire, release *Script
	keys             map[string][]string // by the processes that listen
	seen             map[string]int      // states, by their text
	worlds           []world
	next             [][]int // by state: those that progress leads to
	from             []step  // by state: how it was reached first
}

type step struct {
	state int
	event string
}

func newQueueModel(t *testing.T, members ...member) *queueModel {
	t.Helper()
	m := &queueModel{
		t: t, members: members, acquire: acquire, release: release,
		rdb:  goredis.NewClient(&goredis.Options{Addr: testserver.Redis(t).Addr()}),
		keys: map[string][]string{}, seen: map[string]int{},
	}
	t.Cleanup(func() { _ = m.rdb.Close() })
	return m
}

// lock returns the keys of a lock on whose channels just the processes listen that do so in w.
func (m *queueModel) lock(w *world) []string {
	var listening []string
	for i, c := range w.clients {
		if p := m.members[i].process; c.listens && !slices.Contains(listening, p) {
			listening = append(listening, p)
		}
	}
	name := strings.Join(listening, ",")
	if m.keys[name] != nil {
		return m.keys[name]
	}
	both := keysOf(m.t.Name() + " " + name)
	keys := []string{both[0].(string), both[1].(string)}
	m.keys[name] = keys
	sub := m.rdb.Subscribe(m.t.Context())
	m.t.Cleanup(func() { _ = sub.Close() })
	for _, process := range listening {
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

func (w *world) owner() string { return w.hash["owner"] }

func (w *world) copy() *world {
	c := *w
	c.hash, c.queue, c.clients = maps.Clone(w.hash), slices.Clone(w.queue), slices.Clone(w.clients)
	return &c
}

// settle forgets what matters no more.
func (w *world) settle() {
	for i := range w.clients {
		c := &w.clients[i]
		switch old := *c; c.phase {
		case waiting:
			c.token, c.expired = 0, false
		case holding, ended, releasing:
			*c = client{owner: old.owner, phase: old.phase, token: old.token, expired: old.expired, listens: old.listens}
		case gone:
			*c = client{owner: old.owner, phase: gone, late: old.late, claimed: old.claimed, listens: old.listens}
			if old.late {
				c.place = old.place
			}
			queued := slices.ContainsFunc(w.queue, func(z goredis.Z) bool { return z.Member == old.owner })
			if old.late || queued || w.owner() == ">"+old.owner {
				c.seat = old.seat
			}
		case crashed:
			*c = client{owner: old.owner, phase: crashed}
		}
	}
}

// text is the same for worlds that differ in nothing but the numbers by which time is told. Of tokens it matters whether they
// are the last, or the one before, and whether their hold is known to have expired; of places, which is ahead of which.
func (w *world) text() string {
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(w.hash[field], 10, 64)
		return n
	}
	last, before, lapsed := number("token"), number("before"), number("lapsed")
	places := []int64{0}
	for _, z := range w.queue {
		places = append(places, int64(z.Score))
	}
	for _, c := range w.clients {
		places = append(places, int64(c.place), int64(c.seat))
	}
	slices.Sort(places)
	places = slices.Compact(places)
	rank := func(place int64) int { return slices.Index(places, place) }
	var b strings.Builder
	fmt.Fprint(&b, w.owner(), w.hash["queue"], w.expired, last > 0, lapsed < last)
	for _, z := range w.queue {
		fmt.Fprint(&b, " ", z.Member, rank(int64(z.Score)))
	}
	for _, c := range w.clients {
		fmt.Fprintf(&b, "|%d %d %d", c.phase, rank(int64(c.seat)), rank(int64(c.place)))
		fmt.Fprint(&b, c.late, c.claimed, c.expired, c.listens, c.excused)
		if c.token > 0 {
			fmt.Fprint(&b, c.token == last, c.token == before, lapsed < c.token)
		}
	}
	return b.String()
}

// events are what can happen in w.
func (m *queueModel) events(w *world) []event {
	var all []event
	for i := range w.clients {
		all = append(all, m.of(w, i)...)
	}
	if m.lossless {
		all = slices.DeleteFunc(all, func(e event) bool { return e.loss })
	}
	if w.owner() != "" && !w.expired {
		all = append(all, event{name: "the hold or claim expires", progress: true, before: m.expire})
	}
	return all
}

// of returns what member i can do, or can happen to it.
func (m *queueModel) of(w *world, i int) []event {
	c, me := w.clients[i], m.members[i]
	var all []event
	set := func(p phase) func(*world) { return func(w *world) { w.clients[i].phase = p } }
	if m.alive(w, i) && (c.phase == idle || c.phase == waiting) {
		all = append(all, m.ask(w, i, "asks", false), m.ask(w, i, "asks, and the reply is lost", true))
	}
	releases := func(name string, owner string, token int64, sent int, after func(*world, any) error) event {
		return event{name: me.owner + " " + name, progress: after != nil, script: m.release, args: []any{owner, token, sent}, after: after}
	}
	switch c.phase {
	case holding, ended:
		all = append(all, releases("releases", me.owner, c.token, 0, func(w *world, reply any) error {
			if reply != any(int64(1)) && c.phase == holding {
				return fmt.Errorf("%s releases its hold, and hears that it had ended", me.owner)
			}
			if reply == any(int64(1)) && c.expired {
				return fmt.Errorf("%s releases a hold that has expired, and hears that it had not", me.owner)
			}
			w.clients[i].phase = gone
			return nil
		}))
		lost := releases("releases, and the reply is lost", me.owner, c.token, 0, nil)
		lost.loss, lost.after = true, func(w *world, _ any) error { set(releasing)(w); return nil }
		all = append(all, lost)
	case releasing:
		all = append(all, releases("releases again", me.owner, c.token, 1, func(w *world, reply any) error {
			if reply == any(int64(1)) && c.expired {
				return fmt.Errorf("%s releases a hold again that has expired, and hears that it had not", me.owner)
			}
			w.clients[i].phase = gone
			return nil
		}))
	case waiting:
		gives := releases("gives up", me.owner, 0, 0, nil)
		gives.after = func(w *world, _ any) error { set(gone)(w); return nil }
		late := releases("gives up, and a request of it is under way", me.owner, 0, 0, nil)
		late.loss, late.after = true, func(w *world, _ any) error {
			w.clients[i].phase, w.clients[i].late = gone, true
			return nil
		}
		all = append(all, gives, late, event{name: me.owner + " gives up, and the server does not hear of it", loss: true, before: set(gone)})
	case gone:
		if c.late {
			late := m.ask(w, i, "asked, and that arrives now", true)
			late.before = func(w *world) { w.clients[i].late = false }
			all = append(all, late)
		}
		if c.claimed && c.listens {
			all = append(all, releases("declines", ">"+me.owner, 1, 0, func(w *world, _ any) error {
				w.clients[i].claimed = w.owner() == ">"+me.owner
				return nil
			}))
		}
	}
	if c.phase == waiting && c.seat > 0 && me.process != "" && !c.listens {
		all = append(all, event{name: "process " + me.process + " listens", progress: true, before: func(w *world) {
			for j, other := range m.members {
				w.clients[j].listens = w.clients[j].listens || other.process == me.process
			}
		}})
	}
	if c.phase != idle && m.alive(w, i) && me.waits() {
		all = append(all, event{name: me.owner + " dies", before: func(w *world) {
			for j := range w.clients {
				if j == i || me.process != "" && m.members[j].process == me.process {
					w.clients[j].phase, w.clients[j].listens = crashed, false
				}
			}
		}})
	}
	return all
}

func (m *queueModel) alive(w *world, i int) bool {
	for j, c := range w.clients {
		if c.phase == crashed && (j == i || m.members[i].process != "" && m.members[j].process == m.members[i].process) {
			return false
		}
	}
	return true
}

// reachable reports whether member i hears of a claim, or looks.
func (m *queueModel) reachable(w *world, i int) bool {
	return m.alive(w, i) && (m.members[i].process == "" || w.clients[i].listens)
}

// ask is a request of member i for the lock.
func (m *queueModel) ask(w *world, i int, name string, lost bool) event {
	c, me := w.clients[i], m.members[i]
	var stands uint64 // where it is in the queue; 0: it is not
	for _, z := range w.queue {
		if z.Member == me.owner {
			stands = uint64(z.Score)
		}
	}
	after := func(w *world, reply any) error {
		a, err := parseAnswer(reply)
		if err != nil {
			return err
		}
		if a.status != granted && a.status != held {
			return fmt.Errorf("%s is answered %v", me.owner, reply)
		}
		c := &w.clients[i]
		if a.status == held && me.waits() {
			if stands > 0 && a.place != stands {
				return fmt.Errorf("%s loses its place", me.owner)
			}
			c.seat = a.place
			deaf, tooLate := me.process != "" && !c.listens, c.excused && w.owner()[0] == '>'
			c.excused = deaf || tooLate
		}
		switch {
		case c.phase == gone: // and nobody hears the reply
		case lost && !me.waits():
			c.phase = waiting // until it gives up, which releases
		case lost:
			c.phase = waiting
		case a.status == granted:
			c.phase, c.token, c.expired = holding, a.token, false
		case me.waits():
			c.phase = waiting
			if c.place == 0 {
				c.place = a.place
			}
		default:
			c.phase = gone
		}
		return nil
	}
	place := c.place
	return event{
		name: me.owner + " " + name, progress: !lost && c.phase == waiting, loss: lost,
		script: m.acquire, args: []any{me.owner, expiry(ttl), place, inTime, ""}, after: after,
	}
}

// expire ends what the server has: a hold, or a claim that nobody has answered.
func (m *queueModel) expire(w *world) {
	w.expired = true
	for i, me := range m.members {
		c := &w.clients[i]
		switch w.owner() {
		case me.owner:
			c.expired, c.excused = true, true // its reply was lost, and that for a whole TTL
			if c.phase == holding {
				c.phase = ended
			}
		case ">" + me.owner:
			for j, other := range m.members {
				if j == i || me.process != "" && other.process == me.process {
					w.clients[j].excused = true
				}
			}
		}
	}
}

// check returns what must not be after an event that led from before to w.
func (m *queueModel) check(before, w *world) error {
	owner := w.owner()
	for i, c := range w.clients {
		me := m.members[i]
		if c.phase == holding && (owner != me.owner || w.expired) {
			return fmt.Errorf("%s holds, and the server has it that %q does", me.owner, owner)
		}
		if owner == "" && slices.ContainsFunc(w.queue, func(z goredis.Z) bool { return z.Member == me.owner }) && m.reachable(w, i) {
			return fmt.Errorf("the lock is free, and %s, who is alive, is in the queue", me.owner)
		}
	}
	if owner == "" || owner[0] == '>' || w.expired || owner == before.owner() && !before.expired {
		return nil
	}
	// It has been granted anew.
	token, _ := strconv.ParseInt(w.hash["token"], 10, 64)
	last, _ := strconv.ParseInt(before.hash["token"], 10, 64)
	if token <= last {
		return fmt.Errorf("%s is granted token %d after %d", owner, token, last)
	}
	granted := slices.IndexFunc(m.members, func(me member) bool { return me.owner == owner })
	mine := w.clients[granted].seat
	for i, c := range w.clients {
		if i != granted && c.phase == waiting && c.seat > 0 && (mine == 0 || c.seat < mine) && !c.excused {
			return fmt.Errorf("%s is granted the lock before %s, who asked before", owner, m.members[i].owner)
		}
	}
	return nil
}

// run has events happen in w, each by itself, and returns what each leads to.
func (m *queueModel) run(w *world, events []event) ([]*world, []error) {
	type read struct {
		reply *goredis.Cmd
		hash  *goredis.MapStringStringCmd
		ttl   *goredis.DurationCmd
		queue *goredis.ZSliceCmd
	}
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
				p.PExpire(ctx, keys[0], left)
			}
			if len(n.queue) > 0 {
				p.ZAdd(ctx, keys[1], n.queue...)
			}
			reads[i].reply = p.EvalSha(ctx, e.script.SHA.(string), keys, e.args...)
			reads[i].hash = p.HGetAll(ctx, keys[0])
			reads[i].ttl = p.PTTL(ctx, keys[0])
			reads[i].queue = p.ZRangeWithScores(ctx, keys[1], 0, -1)
		}
		return nil
	})
	for i, e := range events {
		n := worlds[i]
		if r := reads[i]; r.reply != nil {
			reply, err := r.reply.Result()
			require.NoError(m.t, err, e.name)
			n.hash, n.queue, n.expired = r.hash.Val(), r.queue.Val(), r.ttl.Val() <= Keep
			for j, me := range m.members {
				n.clients[j].claimed = n.clients[j].claimed || n.owner() == ">"+me.owner
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
	for _, s := range []*Script{m.acquire, m.release} {
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
	t.Parallel()
	for _, c := range []struct {
		name     string
		members  []member
		lossless bool
	}{
		{"two processes", []member{listener, other}, false},
		{"one listens, one looks", []member{listener, looker}, false},
		{"two of one process", []member{listener, second}, false},
		{"two processes and a newcomer, nothing is lost", []member{listener, other, newcomer}, true},
		{"one listens, one looks, and a newcomer, nothing is lost", []member{listener, looker, newcomer}, true},
		{"three processes, nothing is lost", []member{listener, other, third}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "two processes" {
				testwait.OnlyInCheck(t, "two processes meet most of it")
			}
			t.Parallel()
			m := newQueueModel(t, c.members...)
			m.lossless = c.lossless
			require.NoError(t, m.explore())
			t.Logf("%d states", len(m.worlds))
		})
	}
}

func TestQueueModel_seesScriptsThatAreWrong(t *testing.T) {
	testwait.OnlyInCheck(t, "it tests TestQueueModel_everyOrderOfEvents")
	t.Parallel()
	for name, broken := range map[string]struct{ was, is, want string }{
		"a release does not look at the queue": {
			"elseif lock[2] then", "elseif false then", "the lock is free",
		},
		"a release hands the lock to nobody": {
			"local waiter = lock[2] and next_waiter(KEYS[1], QUEUE)", "local waiter = nil", "the lock is free",
		},
		"the first who finds an expired hold takes it": {
			"if first == ARGV[1] then", "if first then", "who asked before",
		},
		"a request that is sent twice goes to the end": {
			"redis.pcall('ZADD', QUEUE, 'NX', place", "redis.pcall('ZADD', QUEUE, place", "loses its place",
		},
		"a hold that expired is not noted": {
			"lapsed = last -- its holder did not release it", "", "releases a hold again that has expired",
		},
		"what others have does not expire": {
			"left = redis.call('PTTL', KEYS[1]) - KEEP",
			"left = math.max(redis.call('PTTL', KEYS[1]) - KEEP, owner ~= ARGV[1] and 1 or 0)", "waits for ever",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := []member{listener, other, newcomer}
			if broken.want == "waits for ever" { // which is known when all states are
				members = members[:2]
			}
			m := newQueueModel(t, members...)
			m.acquire, m.release = mutated(acquire, broken.was, broken.is), mutated(release, broken.was, broken.is)
			require.False(t, m.acquire.SHA == acquire.SHA && m.release.SHA == release.SHA, "%q is in no script", broken.was)
			require.ErrorContains(t, m.explore(), broken.want)
		})
	}
}

// mutated is s with another text in the place of one.
func mutated(s *Script, was, is string) *Script {
	broken := *s
	broken.Source = strings.Replace(s.Source, was, is, 1)
	sum := sha1.Sum([]byte(broken.Source))
	broken.SHA = hex.EncodeToString(sum[:])
	return &broken
}
