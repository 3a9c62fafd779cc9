package postgres

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// The model of grace and reclaim: two owners want one name, whose row is lost when the server
// crashes, a standby takes over, or a backup is restored. Requests and replies arrive late, or
// never. The explorer goes through every order of events. The queue is not in it: a grant by
// hand-over is to its owner what a request is whose reply is late.

const (
	modelTTL    = 2
	modelTokens = 16 // a tick of the server's clock, in tokens
)

// rules are those of the protocol. Each that is relaxed breaks the model.
type rules struct {
	noGrace          bool // a name without a row is granted though the table was lost
	graceFromNothing bool // the longest TTL is written after the grant, so that a loss finds none
	lateReclaim      bool // an owner whose deadline has passed reclaims: its clock stands still
	reclaimAfter     bool // the server accepts that when the grace is over
	reclaimOtherEra  bool // or in another era than that for which it was sent
	reclaimOverwrite bool // or though there is a row
	takeOtherEra     bool // a take does not say in which era it was sent
	keepVersion      bool // a release after an unknown outcome leaves the version as it is
	sweepVersion     bool // a new row has the version of one that was swept
	sweepToken       bool // or a token that has been granted
	sweepInGrace     bool // rows of free names are swept while the grace lasts
	noTombstone      bool // a release after a reclaim of unknown outcome leaves no row
	releaseAgain     bool // a release that was sent before reclaims, too, if the row was lost
	noPlaceholder    bool // nor does one after a take of unknown outcome, if the name has none
	fromReply        bool // the deadline counts from the reply
	countTokens      bool // a new row's token does not go by the clock
	forgetForced     bool // that a hold was ended by force is lost with the row

	// These are no rules, but conditions: the world, and not the protocol, is worse.
	clockForward, lostTTL, twoPrimaries bool
}

type modelRow struct {
	there        bool
	era, version int8
	token        int16
	owner        int8 // a claim, or 0: the row has never been granted
	expires      int8 // on the server's clock; 0: free
}

type modelServer struct {
	clock    int8 // ahead of the true time
	era      int8 // 0: the table was lost, and nobody has noticed
	graceEnd int8
	base     int8  // the version of new rows
	floor    int16 // the token of new rows
	longest  int8  // written with a flush
	forced   uint8 // claims that were ended by force; written with a flush
	row      modelRow
}

type modelKind int8

const (
	none modelKind = iota
	toEnter
	toAsk
	toExtend
	toReclaim
	toRelease
)

// message is a request, or its reply.
type message struct {
	kind           modelKind
	client         int8
	claim          int8
	sent           int8
	era, version   int8
	token          int16
	doubt          bool // see modelClient
	reclaimEra     int8
	answered       bool // it is the reply
	ok, missing    bool
	newEra, newVer int8
	heldEra        int8 // of a release: see modelClient
	leaving        bool
}

type phase int8

const (
	idle phase = iota
	asking
	holding
	releasing
)

type modelClient struct {
	phase        phase
	claim        int8
	server       int8
	era, version int8 // known, and where the TTL was written; era 0: neither
	heldEra      int8 // in which the hold was granted or reclaimed
	token        int16
	deadline     int8
	doubt        bool // an ask has no answer
	reclaimEra   int8 // the era for which a reclaim was sent
	missing      bool // the row was not there at the last renewal
	leaving      bool // a release was sent
}

// over ends a claim. The next one of the client may know the version.
func (c *modelClient) over() {
	*c = modelClient{claim: c.claim, server: c.server, era: c.era, version: c.version}
	if c.claim > 1 {
		c.era, c.version = 0, 0
	}
}

type world struct {
	now      int8
	servers  [2]modelServer
	clients  [2]modelClient
	messages [2]message
	faults   int8
	highest  int16 // token that was granted
	released uint8 // claims whose release was answered
	ended    uint8 // claims that were ended by force
}

var modelSeed = maphash.MakeSeed()

type explorer struct {
	rules
	faults  []func(*world)      // that may happen
	seen    map[uint64]struct{} // hashes of worlds
	horizon int8
	broken  string
}

func (e *explorer) explore(w world) {
	if e.broken != "" || w.now > e.horizon {
		return
	}
	w.forget()
	hash := maphash.Comparable(modelSeed, w)
	if _, ok := e.seen[hash]; ok {
		return
	}
	e.seen[hash] = struct{}{}
	if e.holds(&w, 0) && e.holds(&w, 1) {
		e.fail(&w, "two hold")
		return
	}
	e.messages(w)
	for i := range w.clients {
		e.client(w, int8(i))
	}
	for _, fault := range e.faults {
		if w.faults > 0 {
			next := w
			next.faults--
			fault(&next)
			e.explore(next)
		}
	}
	for i := range w.servers { // a sweep
		s := w.servers[i]
		if s.row.there && (s.row.expires <= w.now+s.clock) && (w.now+s.clock >= s.graceEnd || e.sweepInGrace) && w.faults > 0 {
			next := w
			next.faults--
			if !e.sweepVersion {
				next.servers[i].base = max(s.base, s.row.version) + 1
			}
			if !e.sweepToken {
				next.servers[i].floor = max(s.floor, s.row.token)
			}
			next.servers[i].row = modelRow{}
			e.explore(next)
		}
	}
	w.now++
	e.explore(w)
}

func TestModel(t *testing.T) {
	t.Parallel()
	lost := func(w *world) { // a crash, a restored backup: the longest TTL was on disk
		s := &w.servers[0]
		*s = modelServer{clock: s.clock, longest: s.longest, forced: s.forced}
	}
	force := func(w *world) {
		s := &w.servers[0]
		if s.row.there && s.row.owner != 0 && s.row.expires > w.now+s.clock {
			s.forced |= 1 << s.row.owner
			w.ended |= 1 << s.row.owner
			s.row.expires = 0
			s.row.version++
		}
	}
	// A standby takes over, whose clock is behind by less than the longest TTL.
	promoted := func(w *world) { lost(w); w.servers[0].clock = 1 - modelTTL }
	for _, c := range []struct {
		name   string
		rules  rules
		breaks string // "": anything
		faults int8   // that it takes, if not 1
	}{
		{name: "as it is"},
		{name: "as it is, and a hold is ended by force", faults: 2},
		{name: "what was ended by force is forgotten", rules: rules{forgetForced: true}, breaks: "was ended by force", faults: 2},
		{name: "no grace", rules: rules{noGrace: true}},
		{name: "the longest TTL is written too late", rules: rules{graceFromNothing: true}},
		{name: "a reclaim after the deadline", rules: rules{lateReclaim: true}, breaks: "a token has not risen"},
		{name: "a reclaim after the grace", rules: rules{reclaimAfter: true}, breaks: "arrives after its release"},
		{name: "a reclaim of another era", rules: rules{reclaimOtherEra: true}, faults: 2},
		{name: "a reclaim of what has a row", rules: rules{reclaimOverwrite: true}},
		{name: "a take of another era", rules: rules{takeOtherEra: true}, breaks: "arrives after its release"},
		{name: "a version that stays", rules: rules{keepVersion: true}, breaks: "arrives after its release"},
		{name: "a version that comes again", rules: rules{sweepVersion: true}, breaks: "arrives after its release"},
		{name: "a token that comes again", rules: rules{sweepToken: true}, breaks: "a token has not risen"},
		{name: "a sweep in the grace", rules: rules{sweepInGrace: true}, breaks: "arrives after its release", faults: 2},
		{name: "no row after a reclaim in doubt", rules: rules{noTombstone: true}, breaks: "arrives after its release"},
		{name: "a release that is sent again reclaims", rules: rules{releaseAgain: true}, breaks: "a token has not risen"},
		{name: "no row after a take in doubt", rules: rules{noPlaceholder: true}, breaks: "arrives after its release"},
		{name: "a deadline from the reply on", rules: rules{fromReply: true}, breaks: "two hold"},
		{name: "tokens without a clock", rules: rules{countTokens: true}, breaks: "a token has not risen"},

		{name: "condition: the clock goes forward", rules: rules{clockForward: true}, breaks: "two hold"},
		{name: "condition: the longest TTL is lost", rules: rules{lostTTL: true}},
		{name: "condition: two primaries", rules: rules{twoPrimaries: true}, breaks: "two hold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.rules == (rules{}) && c.faults > 1 {
				testwait.OnlyNightly(t, "it goes through millions of states")
			}
			e := &explorer{rules: c.rules, faults: []func(*world){lost, promoted}, seen: map[uint64]struct{}{}, horizon: 7}
			if strings.Contains(c.name, "by force") {
				e.faults = []func(*world){lost, force}
			}
			if c.rules.clockForward {
				e.faults = append(e.faults, func(w *world) { w.servers[0].clock += modelTTL })
			}
			if c.rules.lostTTL {
				e.faults = []func(*world){func(w *world) { lost(w); w.servers[0].longest = 0 }}
			}
			if c.rules.twoPrimaries {
				e.faults = append(e.faults, func(w *world) {
					w.servers[1] = modelServer{clock: w.servers[0].clock, longest: w.servers[0].longest}
					w.clients[1].server = 1
				})
			}
			w := world{now: 4, faults: max(c.faults, 1)}
			w.clients[1].claim = 1
			e.explore(w)
			if c.rules == (rules{}) {
				require.Empty(t, e.broken)
				t.Logf("%d states", len(e.seen))
				return
			}
			require.NotEmpty(t, e.broken, "after %d states", len(e.seen))
			assert.Contains(t, e.broken, c.breaks)
		})
	}
}

// forget drops what makes no difference any more.
func (w *world) forget() {
	for i := range w.messages {
		m := &w.messages[i]
		if m.kind == none {
			continue
		}
		c := &w.clients[m.client]
		finished := c.claim != m.claim || c.phase == idle
		if finished && (m.answered || m.kind != toAsk && m.kind != toReclaim) || m.answered && c.phase == releasing && m.kind != toRelease {
			*m = message{}
		} else if m.answered {
			m.era, m.version, m.doubt, m.reclaimEra, m.heldEra, m.leaving = 0, 0, false, 0, 0, false
		}
	}
	if w.messages[0].kind < w.messages[1].kind {
		w.messages[0], w.messages[1] = w.messages[1], w.messages[0]
	}
}

func (e *explorer) fail(w *world, what string) { e.broken = fmt.Sprintf("%s: %+v", what, *w) }

func (*explorer) holds(w *world, i int8) bool {
	c := &w.clients[i]
	return c.phase == holding && w.now < c.deadline && w.ended&(1<<c.claim) == 0
}

// messages has each arrive. One that is lost is one that arrives when nobody waits for it any more,
// or never.
func (e *explorer) messages(w world) {
	for i, m := range w.messages {
		if m.kind == none {
			continue
		}
		next := w
		if m.answered {
			next.messages[i] = message{}
			e.reply(&next, m)
		} else {
			next.messages[i] = e.serve(&next, m)
		}
		e.explore(next)
	}
}

// send reports whether there was room for one more on the way.
func send(w *world, m message) bool {
	for i := range w.messages {
		if w.messages[i].kind == none {
			m.sent = w.now
			w.messages[i] = m
			return true
		}
	}
	return false
}

// client lets a client do what it may do next.
func (e *explorer) client(w world, i int8) {
	do := func(f func(next *world, c *modelClient) bool) {
		next := w
		if f(&next, &next.clients[i]) {
			e.explore(next)
		}
	}
	request := func(kind modelKind) func(*world, *modelClient) bool {
		return func(next *world, c *modelClient) bool {
			return send(next, message{kind: kind, client: i, claim: c.claim, era: c.era, version: c.version, token: c.token, doubt: c.doubt, reclaimEra: c.reclaimEra})
		}
	}
	c := w.clients[i]
	for _, m := range w.messages {
		if m.kind != none && m.client == i && m.claim == c.claim && m.kind != toRelease && c.phase != releasing {
			// One request at a time. A claim that has none to wait for any more may give up.
			if c.phase == asking || c.phase == holding {
				do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
			}
			return
		}
	}
	switch c.phase {
	case idle:
		if c.claim < 2 { // one claim each
			do(func(_ *world, c *modelClient) bool { c.phase = asking; c.claim += 2; return true })
		}
	case asking:
		if c.era == 0 {
			do(request(toEnter))
			return
		}
		do(func(next *world, c *modelClient) bool { c.doubt = true; return request(toAsk)(next, c) })
		do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
	case holding:
		if w.now >= c.deadline && !e.lateReclaim {
			do(func(_ *world, c *modelClient) bool { c.over(); return true })
			return
		}
		switch {
		case !c.missing:
			do(request(toExtend))
		case c.era == 0:
			do(request(toEnter))
		case c.era != c.heldEra:
			do(func(next *world, c *modelClient) bool { c.reclaimEra = c.era; return request(toReclaim)(next, c) })
		}
		do(func(_ *world, c *modelClient) bool { c.phase = releasing; return true })
	case releasing:
		if !c.doubt && c.heldEra == 0 { // there is nothing
			do(func(_ *world, c *modelClient) bool { c.over(); return true })
			return
		}
		do(func(next *world, c *modelClient) bool {
			sent := send(next, message{
				kind: toRelease, client: i, claim: c.claim, era: c.era, version: c.version, token: c.token,
				doubt: c.doubt, reclaimEra: c.reclaimEra, heldEra: c.heldEra, leaving: c.leaving,
			})
			c.leaving = true
			return sent
		})
	}
}

// serve is what the server does with a request. It returns the reply.
func (e *explorer) serve(w *world, m message) message {
	s := &w.servers[w.clients[m.client].server]
	clock, row := w.now+s.clock, &s.row
	held := row.there && row.expires > clock
	ours := held && row.owner == m.claim
	m.answered = true
	m.newEra, m.newVer = s.era, row.version
	gone := w.released&(1<<m.claim) != 0
	forced := s.forced&(1<<m.claim) != 0 && !e.forgetForced
	mint := func(least int16) int16 {
		token := least + 1
		if !e.countTokens {
			token = max(token, int16(clock)*modelTokens)
		}
		if token <= w.highest {
			e.fail(w, "a token has not risen")
		}
		w.highest = token
		return token
	}
	switch m.kind {
	case none:
	case toEnter:
		if s.era == 0 {
			s.era, s.base = nextEra(w), 0
			s.graceEnd = clock + s.longest
		}
		if !e.graceFromNothing {
			s.longest = modelTTL
		}
		m.newEra, m.newVer, m.ok = s.era, s.base, true
	case toAsk:
		if !row.there && s.era == m.era && s.era != 0 && (clock >= s.graceEnd || e.noGrace) {
			*row = modelRow{there: true, era: s.era, version: s.base, token: s.floor}
		}
		m.missing = !row.there
		m.newVer = row.version
		if row.there && (row.era == m.era || e.takeOtherEra) && row.version == m.version && (!held || ours) {
			if gone {
				e.fail(w, "a take that arrives after its release was answered takes")
			}
			if !ours {
				row.token = mint(row.token)
			}
			row.owner, row.expires, m.ok, m.token = m.claim, clock+modelTTL, true, row.token
			m.newEra = row.era
		}
	case toExtend:
		if m.ok = ours; ours {
			row.expires = clock + modelTTL
		}
		m.missing = !row.there
	case toReclaim:
		valid := e.holds(w, m.client) && w.clients[m.client].claim == m.claim
		inGrace := clock < s.graceEnd && s.era == m.era
		accept := (clock < s.graceEnd || e.reclaimAfter) && (s.era == m.era || e.reclaimOtherEra && s.era != 0)
		if accept && !forced && (!row.there || row.owner == 0 || row.token < m.token || e.reclaimOverwrite) {
			if gone {
				e.fail(w, "a reclaim that arrives after its release was answered takes")
			}
			if w.ended&(1<<m.claim) != 0 {
				e.fail(w, "a hold that was ended by force is reclaimed")
			}
			version := s.base
			if row.there {
				version = row.version
			}
			*row = modelRow{there: true, era: s.era, version: version, token: m.token, owner: m.claim}
			ours = true
		}
		if m.ok = ours; ours {
			row.expires = clock + modelTTL
		} else if valid && inGrace {
			e.fail(w, "a hold does not survive")
		}
	case toRelease:
		if ours {
			row.expires = 0
		}
		if m.doubt && row.there && row.era == m.era && !e.keepVersion {
			row.version = max(row.version, m.version+1)
		}
		if m.doubt && !row.there && s.era == m.era && !e.noPlaceholder { // not free before the grace is over
			*row = modelRow{there: true, era: s.era, version: s.base + 1, token: s.floor, expires: s.graceEnd}
		}
		// The row was lost. The client reclaims its hold, and releases it at once. It does not if
		// an earlier release may have given the lock to another.
		lost := m.heldEra != 0 && m.heldEra != s.era && w.clients[m.client].claim == m.claim && (w.now < w.clients[m.client].deadline || e.lateReclaim)
		if !forced && (m.reclaimEra == s.era || lost && (!m.leaving || e.releaseAgain)) && (!row.there || row.owner == 0 || row.token < m.token) && s.era != 0 && (s.era == m.era || lost) && clock < s.graceEnd && !e.noTombstone {
			*row = modelRow{there: true, era: s.era, version: max(s.base, row.version), token: m.token, owner: m.claim}
		}
		m.ok = true
	}
	return m
}

func nextEra(w *world) int8 {
	return max(w.servers[0].era, w.servers[1].era, w.clients[0].era, w.clients[1].era, w.clients[0].heldEra, w.clients[1].heldEra, w.messages[0].era, w.messages[1].era) + 1
}

// reply is what a client makes of an answer.
func (e *explorer) reply(w *world, m message) {
	c := &w.clients[m.client]
	if c.claim != m.claim {
		return
	}
	begin := m.sent
	if e.fromReply {
		begin = w.now
	}
	switch {
	case m.kind == toEnter:
		c.era, c.version = m.newEra, m.newVer
	case m.kind == toRelease && c.phase == releasing:
		w.released |= 1 << m.claim
		c.over()
	case m.kind == toAsk && c.phase == asking && m.ok:
		if w.now < begin+modelTTL {
			c.phase, c.deadline, c.token, c.heldEra, c.doubt = holding, begin+modelTTL, m.token, m.newEra, false
		}
	case m.kind == toAsk && c.phase == asking:
		c.doubt = false
		if m.newEra != c.era {
			c.era = 0
		} else if !m.missing {
			c.version = m.newVer
		}
	case m.kind == toExtend && c.phase == holding:
		c.missing = m.missing
		switch {
		case m.ok:
			c.deadline = max(c.deadline, begin+modelTTL)
		case m.missing && m.newEra != c.heldEra: // the table was lost
			c.era = 0
		default:
			c.over()
		}
	case m.kind == toReclaim && c.phase == holding && m.ok:
		c.deadline = max(c.deadline, begin+modelTTL)
		c.missing, c.heldEra = false, c.era
	case m.kind == toReclaim && c.phase == holding:
		if m.newEra != c.era { // lost once more
			c.era = 0
		} else {
			c.over()
		}
	}
}
