package redlock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/workers"
)

// The exploration of a tenure takes the lease of the Driver, as it is, through every order in which the requests of an
// attempt and of the Extends after it can arrive at three nodes, and the answers at the client. Requests, answers and
// nodes may be lost or forget, as often as a case says, and another client takes the lock wherever a majority lets it.
// It knows no time: what sane clocks guarantee is in it as an order of events. A node lets a lock lapse only after a
// request that was sent later has succeeded elsewhere.
//
// What has to hold:
//   - An Extend that began after another was granted the lock does not succeed. A node that has forgotten, and does not
//     answer that Extend, is the exception that the package's documentation states.
//   - While no node forgets nobody else is granted the lock.
//   - Once a majority has the lock's token, and while no node forgets, whoever comes next gets a larger one.
type tenure struct {
	name    string
	last    [exNodes]uint64 // tokens accepted before
	extends int             // at most, one after the other
	others  int             // how often another client may be granted the lock
	budget                  // of what may go wrong
	flaw    flaw

	driver     *Driver
	seen       map[uint64]struct{}
	violations map[string]int
}

// budget is how often something may happen.
type budget struct {
	forgets int // a node loses its data
	lapses  int
	drops   int // a request is lost, and its sender told
	losses  int // an answer is lost, and its sender told
	misses  int // a call is given up, whose answer may come later
}

// flaw is a part of the rule left out.
type flaw struct {
	lateGrantsCount bool // as if they had been granted before the majority's
	joinersCount    bool // from the Extend in which they join
	lacksIgnored    bool // a node that joins is as good as any
	notRaised       bool // a node that joins keeps a smaller token
}

// Tokens: what another client proposes has to be raised, as by a clock that is behind.
const (
	ourToken   = 10
	otherToken = 5
	otherOwner = 1 << 32
)

// What must not happen.
const (
	unnoticed = "an Extend succeeded after another had been granted the lock"
	besides   = "another was granted the lock, though no node had forgotten"
	smaller   = "whoever comes next gets a token that is no larger"
)

// happening is one history, up to now.
type happening struct {
	*tenure
	budget
	lease   *lease
	decided *waiter
	err     error
	nodes   [exNodes]tenureNode
	calls   []*transit // under way

	ext      *extension // under way
	extended *waiter
	extErr   error
	exts     []*extension // all

	epoch, success int // of the latest request, and of what last succeeded
	owners         uint64
	granted        int // how often the other was
	before         int // of which this many before the Extend under way began
	excused        int // of which this many need not be noticed
	forgot         int // how often a node has
	forgotBefore   int // before the Extend under way began
	otherHolds     bool
	solid          bool // a majority has our token, and has not forgotten
	bad            string
}

// transit is a call under way.
type transit struct {
	*call
	node    int
	epoch   int
	arrived bool
	missed  bool
	err     error
}

// tenureNode is a server, at which requests arrive when the exploration says so.
type tenureNode struct {
	*happening
	register
	i       int
	epoch   int // of the latest request of ours that was granted
	dropped bool
}

func (n *tenureNode) Acquire(context.Context, locker.Request) (locker.Lease, error) {
	panic("not used")
}
func (n *tenureNode) Guarantees() locker.Guarantees { return nil }
func (n *tenureNode) Close() error                  { return nil }
func (n *tenureNode) Address() string               { return "" }

func (n *tenureNode) Propose(_ context.Context, _ locker.Request, token uint64) (locker.RaisableLease, error) {
	n.owners++
	l := &tenureLease{n: n, owner: n.owners}
	if n.dropped {
		return l, errAway
	}
	ok, accepted := n.take(0, l.owner, 1, token)
	if !ok {
		return nil, locker.ErrHeld
	}
	l.token.Store(accepted)
	return l, nil
}

type tenureLease struct {
	n     *tenureNode
	owner uint64
	token atomic.Uint64
}

func (l *tenureLease) Token() uint64           { return l.token.Load() }
func (l *tenureLease) Validity() time.Duration { return time.Hour }

func (l *tenureLease) do(ok func() bool) error {
	switch {
	case l.n.dropped:
		return errAway
	case !ok():
		return locker.ErrLost
	default:
		return nil
	}
}

func (l *tenureLease) Extend(context.Context, time.Duration) error {
	return l.do(func() bool { return l.n.register.extend(0, l.owner, 1) })
}

func (l *tenureLease) Raise(_ context.Context, token uint64) error {
	err := l.do(func() bool { return l.n.flaw.notRaised || l.n.raise(0, l.owner, token) })
	if err == nil {
		l.token.Store(token)
	}
	return err
}

func (l *tenureLease) Release(context.Context) error { panic("not used") }

// what can happen next.
type what uint8

const (
	arrive what = iota // a request
	drop
	reply
	loseReply
	giveUp
	extendNow
	forgetAll
	lapse
	otherTakes
	otherGoes
)

type event struct {
	what what
	at   uint8 // a call, a node, or a set of nodes
}

var majorities = [][]int{{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}

// events lists them.
func (h *happening) events() (all []event) {
	add := func(possible bool, w what, at int) {
		if possible {
			all = append(all, event{w, uint8(at)})
		}
	}
	for k, c := range h.calls {
		add(!c.arrived, arrive, k)
		add(!c.arrived && h.drops > 0, drop, k)
		add(c.arrived, reply, k)
		add(c.arrived && h.losses > 0, loseReply, k)
		add(!c.missed && h.misses > 0, giveUp, k)
	}
	holds := h.lease.token != 0 && !h.lease.over
	add(holds && h.ext == nil && len(h.exts) < h.extends, extendNow, 0)
	for i := range h.nodes {
		n := &h.nodes[i]
		ours := n.owner != 0 && n.owner != otherOwner
		add(holds && h.forgets > 0 && n.known, forgetAll, i)
		add(holds && ours && h.lapses > 0 && n.epoch < h.success, lapse, i)
	}
	for s, nodes := range majorities {
		free := true
		for _, i := range nodes {
			free = free && !h.nodes[i].left(0)
		}
		add(holds && free && h.granted < h.others, otherTakes, s)
	}
	add(h.otherHolds, otherGoes, 0)
	return all
}

// happen has one of them happen.
func (h *happening) happen(e event) {
	switch e.what {
	case arrive, drop:
		h.arrive(h.calls[e.at], e.what == drop)
	case reply, loseReply:
		h.answer(int(e.at), e.what == loseReply)
	case giveUp:
		c := h.calls[e.at]
		h.misses--
		c.missed = true
		c.message.missed(noAnswer(time.Second))
	case extendNow:
		h.extend()
	case forgetAll:
		h.forgets--
		h.forgot++
		h.solid = false
		h.nodes[e.at].forget()
	case lapse:
		h.lapses--
		h.nodes[e.at].until = 0
	case otherTakes:
		h.otherTakes(majorities[e.at])
	case otherGoes:
		h.otherHolds = false
		for i := range h.nodes {
			h.nodes[i].release(0, otherOwner, 0, false)
		}
	}
	h.look()
	if h.bad == "" {
		h.next()
	}
}

func (h *happening) arrive(c *transit, drop bool) {
	n := &h.nodes[c.node]
	n.dropped = drop
	if drop {
		h.drops--
	}
	c.err = c.send(c.round)
	n.dropped = false
	c.arrived = true
	if c.err == nil {
		n.epoch = c.epoch
	}
}

func (h *happening) answer(k int, lose bool) {
	c := h.calls[k]
	h.calls = slices.Delete(h.calls, k, k+1)
	if lose {
		h.losses--
		c.err = errAway
	}
	c.call.answered(c.err)
	c.round.ended()
}

// begin begins the attempt.
func (x *tenure) begin() *happening {
	h := &happening{tenure: x, budget: x.budget}
	for i := range h.nodes {
		h.nodes[i] = tenureNode{happening: h, i: i, register: register{known: x.last[i] > 0, last: x.last[i]}}
		x.driver.nodes[i].Proposer = &h.nodes[i]
	}
	x.driver.do = func(c workers.Call) { h.send(c.(*call)) }
	h.lease = x.driver.lease(locker.Request{Name: "x", TTL: time.Hour})
	h.decided = h.lease.begin(context.Background(), &h.err)
	return h
}

// send is a call that goes out.
func (h *happening) send(c *call) {
	h.calls = append(h.calls, &transit{call: c, node: slices.Index(h.driver.nodes, c.node), epoch: h.epoch})
}

func (h *happening) extend() {
	h.epoch++
	h.before, h.forgotBefore = h.granted, h.forgot
	r := h.driver.round(context.Background(), time.Hour)
	e := &extension{lease: h.lease, ttl: time.Hour, sent: clock.Now()}
	h.ext, h.exts, h.extErr = e, append(h.exts, e), nil
	h.extended = e.begin(r, func() bool { return e.decide(r, &h.extErr) })
	if h.flaw.lacksIgnored {
		clear(e.lacks)
	}
	for i := range h.nodes {
		r.extendAt(i, []*extension{e})
	}
	r.sent()
}

// otherTakes has another client be granted the lock by a majority.
func (h *happening) otherTakes(nodes []int) {
	var token uint64
	for _, i := range nodes {
		_, accepted := h.nodes[i].take(0, otherOwner, 1, otherToken)
		token = max(token, accepted)
	}
	for _, i := range nodes {
		h.nodes[i].raise(0, otherOwner, token)
	}
	h.granted++
	h.otherHolds = true
	if h.forgot == 0 {
		h.bad = besides
	}
}

// next looks at what another would be granted that any majority lets in, were the tenure over now.
func (h *happening) next() {
	for _, nodes := range majorities {
		var token uint64
		for _, i := range nodes {
			n := h.nodes[i].register
			n.until = 0
			_, accepted := n.take(0, otherOwner, 1, otherToken)
			token = max(token, accepted)
		}
		if h.solid && token <= h.lease.token {
			h.bad = smaller
		}
	}
}

func met(w *waiter) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// look sees what the client has come to know.
func (h *happening) look() {
	if h.decided != nil && met(h.decided) {
		h.decided = nil
		h.solid = h.err == nil && h.forgot == 0
		for i := range h.lease.seats {
			s := &h.lease.seats[i]
			s.joins = s.joins && !h.flaw.lateGrantsCount
		}
	}
	if h.ext == nil || !met(h.extended) {
		return
	}
	e := h.ext
	e.end()
	h.ext = nil
	if h.extErr != nil {
		return
	}
	h.success = h.epoch
	h.solid = h.solid || h.forgot == h.forgotBefore
	for i, v := range e.votes {
		s := &h.lease.seats[i]
		s.joins = s.joins && !(h.flaw.joinersCount && v == nil)
	}
	switch {
	case h.before <= h.excused:
	case h.unanswered(e):
		h.excused = h.before
	default:
		h.bad = unnoticed
	}
}

// unanswered reports whether a node has not answered an Extend.
func (h *happening) unanswered(e *extension) bool {
	for _, v := range e.votes {
		if v != nil && !errors.Is(v, locker.ErrLost) && v != errAbsent && v != errWaiting && v != errJoining { //nolint:errorlint // never wrapped
			return true
		}
	}
	return false
}

// drop ends what a history has begun.
func (h *happening) drop() {
	for _, c := range h.calls {
		c.round.ended()
	}
}

// explore visits every history.
func (x *tenure) explore(t *testing.T) {
	var nodes []locker.Driver
	for range exNodes {
		nodes = append(nodes, &tenureNode{})
	}
	d, err := NewDriver(nodes, NodeTimeout(time.Hour))
	require.NoError(t, err)
	d.clock = func() time.Time { return time.UnixMicro(ourToken) }
	x.driver, x.seen, x.violations = d, map[uint64]struct{}{}, map[string]int{}
	x.visit(x.begin(), nil)
	d.workers.Close()
}

func (x *tenure) replay(path []event) *happening {
	h := x.begin()
	for _, e := range path {
		h.happen(e)
	}
	return h
}

// visit takes every step that is possible after path, and uses up h, which has come so far.
func (x *tenure) visit(h *happening, path []event) {
	if h.bad != "" {
		x.violations[h.bad]++
		h.drop()
		return
	}
	key := h.key()
	if _, again := x.seen[key]; again || h.lease.over || h.err != nil || x.flaw != (flaw{}) && len(x.violations) > 0 {
		h.drop()
		return
	}
	x.seen[key] = struct{}{}
	events := h.events()
	if len(events) == 0 {
		h.drop()
	}
	for k, e := range slices.Backward(events) {
		next := slices.Concat(path, []event{e})
		if k > 0 {
			x.visit(x.replay(next), next)
			continue
		}
		x.proceed(h)
		h.happen(e)
		x.visit(h, next)
	}
}

// proceed goes on with a history that another has interrupted.
func (x *tenure) proceed(h *happening) {
	for i := range h.nodes {
		x.driver.nodes[i].Proposer = &h.nodes[i]
	}
	x.driver.do = func(c workers.Call) { h.send(c.(*call)) }
}

// key is the same for states that differ in the names of the nodes alone, or in owners. It may be the same for two other
// states with a chance of one in 2^64.
func (h *happening) key() uint64 {
	columns := make([]uint64, exNodes)
	for i := range columns {
		columns[i] = h.column(i)
	}
	slices.Sort(columns)
	l := h.lease
	k := digestOf(0, columns...)
	k = digestOf(k, l.ballot.goal, l.token, uint64(len(h.exts)), uint64(h.epoch-h.success),
		uint64(h.forgets), uint64(h.lapses), uint64(h.drops), uint64(h.losses), uint64(h.misses),
		uint64(h.granted), uint64(h.before), uint64(h.excused), uint64(h.forgot), uint64(h.forgotBefore))
	k = digestOf(k, uint64(flags(l.decided, h.decided == nil, h.ext == nil, h.otherHolds, h.solid)))
	for _, e := range h.exts {
		k = digestOf(k, uint64(flags(e.done, h.matters(e))))
	}
	return k
}

// matters reports whether an Extend, perhaps one that is over, can still be told something.
func (h *happening) matters(e *extension) bool {
	return e == h.ext || slices.ContainsFunc(h.calls, func(c *transit) bool {
		m, ok := c.message.(*extendMessage)
		return ok && m.all[0] == e
	})
}

// column is what there is about a node.
func (h *happening) column(i int) uint64 {
	var owners []uint64
	name := func(owner uint64) uint64 {
		if owner == 0 || owner == otherOwner {
			return owner
		}
		at := slices.Index(owners, owner)
		if at < 0 {
			at, owners = len(owners), append(owners, owner)
		}
		return uint64(at + 1)
	}
	lease := func(l locker.Lease) (owner, token uint64) {
		if t, ok := l.(*tenureLease); ok && t != nil {
			return name(t.owner), t.Token()
		}
		return 0, 0
	}
	n, s, v := &h.nodes[i], &h.lease.seats[i], h.lease.ballot.votes[i]
	owner, token := lease(s.lease)
	k := digestOf(0, name(n.owner), n.last, uint64(n.until), uint64(h.success-n.epoch), uint64(v.state), v.token, owner, token, kindOf(s.err))
	k = digestOf(k, uint64(flags(n.known, s.asking, s.late, s.joins)))
	for order, e := range h.exts {
		if h.matters(e) {
			owner, _ := lease(e.ours[i])
			k = digestOf(k, uint64(order), kindOf(e.votes[i]), owner, uint64(flags(e.lacks[i])))
		}
	}
	for _, c := range h.calls {
		if c.node != i {
			continue
		}
		var what, number, owner, token uint64
		switch m := c.message.(type) {
		case *proposeMessage:
			what, number = 1, m.token
			owner, token = lease(m.ours)
		case *raiseMessage:
			what, number = 2, m.goal
			owner, token = lease(m.ours)
		case *extendMessage:
			what, number = 3, uint64(slices.Index(h.exts, m.all[0]))
			owner, token = lease(m.ours[0])
		}
		k = digestOf(k, what, number, owner, token, kindOf(c.err), uint64(h.epoch-c.epoch), uint64(flags(c.arrived, c.missed)))
	}
	return k
}

// kindOf is the same for errors between which the Driver makes no difference.
func kindOf(err error) uint64 {
	for k, other := range []error{nil, locker.ErrLost, locker.ErrHeld, errAbsent, errWaiting, errJoining} {
		if errors.Is(err, other) {
			return uint64(k)
		}
	}
	return 99
}
