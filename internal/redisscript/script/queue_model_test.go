package script

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// These tests take the queue through every order of events: the scripts themselves, on a real server, and clients that are
// made of a few variables each. From each state that can be reached each event is tried that can happen in it: requests whose
// replies come or are lost, or that arrive after their sender has given up; waiters that give up, hang or die; holds and
// claims that expire.

// member is what may ask for the lock. Each asks once in its life.
type member struct {
	owner   string
	process string // that subscribed; empty: it does not
}

func (m member) waits() bool { return strings.Contains(m.owner, "/") }

func (m member) shares() bool { return strings.Contains(m.owner, "~") }

var (
	first    = member{"pP/a", "P"}
	other    = member{"pQ/b", "Q"}
	third    = member{"pS/e", "S"}
	poller   = member{"-R/c", ""}
	second   = member{"pP/d", "P"} // of the first one's process
	newcomer = member{"n", ""}     // does not wait

	reader       = member{"pP/~a", "P"}
	otherReader  = member{"pQ/~b", "Q"}
	pollsToRead  = member{"-R/~c", ""}
	ofTheReaders = member{"pP/w", "P"}
	visitor      = member{"~n", ""} // wants a share, and does not wait
)

// phase is where a member is in its life.
type phase byte

const (
	idle      phase = iota
	waiting         // it asks until it is Granted, or gives up
	holding         // and its deadline has not passed
	ended           // it Held, and the deadline has passed
	releasing       // it has released once, and had no reply
	gone            // it has released, or given up
	crashed
)

// client is a member at some time.
type client struct {
	owner      string
	phase      phase
	shares     bool // if it holds: others may, too
	token      int64
	place      uint64 // as it knows it; 0: not known
	queuedAt   uint64 // its place as the server had it last; 0: it was never queued
	late       bool   // a request of it is still in flight, though it has given up
	claimed    bool   // the lock was claimed for it once: the message may arrive at any time
	expired    bool   // its hold has expired
	subscribed bool   // its process is
	excused    bool   // it may be passed over: when it asked it did not listen, or came back after the lock was claimed for another
}

// world is a state of the server and of all members.
type world struct {
	hash    map[string]string
	expired bool // what the hash says of an owner is over
	queue   []goredis.Z
	readers map[string]bool // shares and claims of shares: whether they last
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

func (w *world) owner() string { return w.hash["owner"] }

func (w *world) copy() *world {
	c := *w
	c.hash, c.queue, c.readers, c.clients = maps.Clone(w.hash), slices.Clone(w.queue), maps.Clone(w.readers), slices.Clone(w.clients)
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
			*c = client{
				owner: old.owner, phase: old.phase, shares: old.shares, token: old.token, expired: old.expired, subscribed: old.subscribed,
			}
		case gone:
			*c = client{owner: old.owner, phase: gone, late: old.late, claimed: old.claimed, subscribed: old.subscribed}
			if old.late {
				c.place = old.place
			}
			queued := slices.ContainsFunc(w.queue, func(z goredis.Z) bool { return z.Member == old.owner })
			if old.late || queued || w.claimed(old.owner) {
				c.queuedAt = old.queuedAt
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
		places = append(places, int64(c.place), int64(c.queuedAt))
	}
	slices.Sort(places)
	places = slices.Compact(places)
	rank := func(place int64) int { return slices.Index(places, place) }
	var b strings.Builder
	gone, _, _ := strings.Cut(w.hash["gone"], "\n")
	fmt.Fprint(&b, w.owner(), w.hash["queue"], w.expired, last > 0, lapsed < last, number("shared") == last)
	fmt.Fprint(&b, gone == "", gone == w.hash["token"], gone == w.hash["before"])
	for _, r := range slices.Sorted(maps.Keys(w.readers)) {
		fmt.Fprint(&b, " ", r, w.readers[r])
	}
	for _, z := range w.queue {
		fmt.Fprint(&b, " ", z.Member, rank(int64(z.Score)))
	}
	for _, c := range w.clients {
		fmt.Fprintf(&b, "|%d %d %d", c.phase, rank(int64(c.queuedAt)), rank(int64(c.place)))
		fmt.Fprint(&b, c.shares, c.late, c.claimed, c.expired, c.subscribed, c.excused)
		if c.token > 0 {
			fmt.Fprint(&b, gone == fmt.Sprint(c.token) && strings.Contains(w.hash["gone"]+"\n", "\n"+c.owner+"\n"))
			fmt.Fprint(&b, c.token == last, c.token == before, lapsed < c.token, c.phase == releasing && w.hash["reader"] == c.owner)
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
	if w.owner() != "" && !w.expired && !w.isShared() {
		all = append(all, event{name: "the hold or claim expires", progress: true, before: m.expire})
	}
	for r, lasts := range w.readers {
		if lasts && w.isShared() {
			all = append(all, event{name: r + " expires", progress: true, before: func(w *world) { m.expireShare(w, r) }})
		}
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
		return event{name: me.owner + " " + name, progress: after != nil, script: Release, args: []any{owner, token, sent}, after: after}
	}
	switch c.phase {
	case holding, ended:
		if !me.shares() && me.waits() && m.downgrades {
			all = append(all, m.downgrade(w, i, false), m.downgrade(w, i, true))
		}
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
		if c.claimed && c.subscribed {
			all = append(all, releases("declines", ">"+me.owner, 1, 0, func(w *world, _ any) error {
				w.clients[i].claimed = w.claimed(me.owner)
				return nil
			}))
		}
	}
	if c.phase == waiting && c.queuedAt > 0 && me.process != "" && !c.subscribed {
		all = append(all, event{name: "process " + me.process + " subscribed", progress: true, before: func(w *world) {
			for j, other := range m.members {
				w.clients[j].subscribed = w.clients[j].subscribed || other.process == me.process
			}
		}})
	}
	if c.phase != idle && m.alive(w, i) && me.waits() {
		all = append(all, event{name: me.owner + " dies", before: func(w *world) {
			for j := range w.clients {
				if j == i || me.process != "" && m.members[j].process == me.process {
					w.clients[j].phase, w.clients[j].subscribed = crashed, false
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
	return m.alive(w, i) && (m.members[i].process == "" || w.clients[i].subscribed)
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
	place := c.place
	after := func(w *world, reply any) error {
		a, err := ParseAnswer(reply, 0)
		if err != nil {
			return err
		}
		if a.Status != Granted && a.Status != Held {
			return fmt.Errorf("%s is answered %v", me.owner, reply)
		}
		c := &w.clients[i]
		if a.Status == Held && me.waits() {
			if stands > 0 && a.Place != stands {
				return fmt.Errorf("%s loses its place", me.owner)
			}
			c.queuedAt = a.Place
			notTold, tooLate := me.process != "" && !c.subscribed, c.excused && w.owner()[0] == '>'
			c.excused = notTold || tooLate
		}
		switch {
		case c.phase == gone: // and nobody hears the reply
		case lost && !me.waits():
			c.phase = waiting // until it gives up, which releases
		case lost:
			c.phase = waiting
		case a.Status == Granted:
			c.phase, c.token, c.expired, c.shares = holding, a.Token, false, me.shares()
		case me.waits():
			c.phase = waiting
			if c.place == 0 {
				c.place = a.Place
			}
		default:
			c.phase = gone
		}
		return nil
	}
	script := Take
	if me.shares() {
		script = TakeShared
	}
	return event{
		name: me.owner + " " + name, progress: !lost && c.phase == waiting, loss: lost,
		script: script, args: []any{me.owner, Expiry(ttl), inTime(int64(place)), ""}, after: after,
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
		if c.phase == holding && (owner != me.owner || w.expired) && !(c.shares && w.isShared() && w.readers[me.owner]) {
			return fmt.Errorf("%s holds, and the server has it that %q does", me.owner, owner)
		}
		if c.phase == holding && c.shares && w.hash["token"] != fmt.Sprint(c.token) {
			return fmt.Errorf("%s has a share of token %d, and the latest is %s", me.owner, c.token, w.hash["token"])
		}
		if owner == "" && slices.ContainsFunc(w.queue, func(z goredis.Z) bool { return z.Member == me.owner }) && m.reachable(w, i) {
			return fmt.Errorf("the lock is free, and %s, who is alive, is in the queue", me.owner)
		}
	}
	if err := m.checkShares(before, w); err != nil {
		return err
	}
	if owner == "" || owner[0] == '>' || w.isShared() || w.expired || owner == before.owner() && !before.expired {
		return nil
	}
	// It has been granted anew.
	token, _ := strconv.ParseInt(w.hash["token"], 10, 64)
	last, _ := strconv.ParseInt(before.hash["token"], 10, 64)
	if token <= last {
		return fmt.Errorf("%s is granted token %d after %d", owner, token, last)
	}
	granted := slices.IndexFunc(m.members, func(me member) bool { return me.owner == owner })
	mine := w.clients[granted].queuedAt
	for i, c := range w.clients {
		if i != granted && c.phase == waiting && c.queuedAt > 0 && (mine == 0 || c.queuedAt < mine) && !c.excused {
			return fmt.Errorf("%s is granted the lock before %s, who asked before", owner, m.members[i].owner)
		}
	}
	return nil
}

// isShared reports whether the lock has shares, or claims of them.
func (w *world) isShared() bool { return w.owner() == "+" || w.owner() == ">+" }

// claimed reports whether the lock, or a share of it, is claimed for an owner.
func (w *world) claimed(owner string) bool {
	_, share := w.readers[">"+owner]
	return w.owner() == ">"+owner || w.isShared() && share
}

// downgrade makes the hold of member i a share. If the reply is lost it makes no difference what it
// has: it counts on a share alone.
func (m *queueModel) downgrade(w *world, i int, lost bool) event {
	c, me := w.clients[i], m.members[i]
	name := me.owner + " downgrades"
	if lost {
		name += ", and the reply is lost"
	}
	return event{name: name, loss: lost, script: Downgrade, args: []any{me.owner}, after: func(w *world, reply any) error {
		if reply != any(int64(1)) && c.phase == holding {
			return fmt.Errorf("%s downgrades its hold, and hears that it had ended", me.owner)
		}
		if reply == any(int64(1)) && c.expired {
			return fmt.Errorf("%s downgrades a hold that has expired, and hears that it had not", me.owner)
		}
		w.clients[i].shares = true
		return nil
	}}
}

// expireShare expires a share, or the lock's claim for a reader.
func (m *queueModel) expireShare(w *world, member string) {
	w.readers[member] = false
	w.expired = true
	for _, lasts := range w.readers {
		w.expired = w.expired && !lasts
	}
	for i, me := range m.members {
		if me.owner != strings.TrimPrefix(member, ">") {
			continue
		}
		c := &w.clients[i]
		c.excused = true
		c.expired = c.expired || me.owner == member
		if c.phase == holding {
			c.phase = ended
		}
	}
}

// checkShares returns what must not be of shares after an event that led from before to w.
func (m *queueModel) checkShares(before, w *world) error {
	if !w.isShared() || w.expired {
		return nil
	}
	index := func(owner string) int {
		return slices.IndexFunc(m.members, func(me member) bool { return me.owner == owner })
	}
	for _, z := range w.queue {
		i := index(z.Member.(string))
		if !m.members[i].shares() {
			break
		}
		if m.reachable(w, i) {
			return fmt.Errorf("others have shares, and %s waits for one, with nobody before it", m.members[i].owner)
		}
	}
	for i, me := range m.members {
		if !w.readers[me.owner] || before.readers[me.owner] && before.isShared() || before.owner() == me.owner {
			continue
		}
		mine := w.clients[i].queuedAt
		for j, c := range w.clients {
			if !m.members[j].shares() && c.phase == waiting && c.queuedAt > 0 && (mine == 0 || c.queuedAt < mine) && !c.excused {
				return fmt.Errorf("%s is granted a share before %s, who asked before", me.owner, m.members[j].owner)
			}
		}
	}
	return nil
}
