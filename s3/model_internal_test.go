package s3

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The model of the protocol: two clients want one name. Each may stop between any two steps; writes
// arrive late, twice or never, and so do their replies. An explorer goes through every order of
// events, as far as it has time. Time goes in half seconds, of which the store shows whole ones;
// the TTL is one second.

const (
	modelTTL  = 2 // ticks
	modelEnd  = 7
	modelLate = 2 // after that a signature has expired: an object is kept for longer
)

// rules are those of the protocol. Each that is relaxed breaks the model.
type rules struct {
	noSecond        bool // a hold has expired when the store's times are a TTL apart
	clientClock     bool // a client's clock, half a second ahead, tells whether it has
	fromReply       bool // the holder's deadline counts from the reply
	believe412      bool // a write that is refused was not made
	noBump          bool // a release leaves the object as it is, if a take that was not answered may still arrive
	blindRelease    bool // a release is written whatever is there
	blindSweep      bool // so is a deletion
	countTokens     bool // the token of a new object does not go by the store's clock
	deleteInRelease bool // a release deletes the object at once
	noConditions    bool // the store ignores conditions
	keepsSignatures bool // a write may arrive when the object that was read has been swept
	oneLook         bool // a hold that has expired is taken over after one read
	aged            bool // it begins where a sweep is about to delete an object, which is no mistake
}

type modelObject struct {
	etag, owner, token, written int8 // etag 0: there is none
	released                    bool
}

type modelKind int8

const (
	none modelKind = iota
	toTake
	toExtend
	toRelease
)

// modelWrite is a write under way, and then its reply.
type modelWrite struct {
	kind               modelKind
	claim, over, token int8
	sent, read, etag   int8
	answered, refused  bool
}

type modelPhase int8

const (
	asking modelPhase = iota
	holding
	releasing
	over
)

type modelClient struct {
	phase        modelPhase
	claim, token int8
	etag         int8 // what the next write asks for
	next         modelKind
	deadline     int8
	read         int8 // when
	doubt        bool
	doubtful     int8 // the ETag that the take asks for which was not answered
	granted      bool
	expired      int8 // the ETag that a read has shown to have expired
	waiting      int8 // for the reply to this write, from 1 on; 0: for none
}

type world struct {
	now, etags, top int8 // the time, the last ETag, the largest token
	before          int8 // when the object was written that the present one has replaced
	object          modelObject
	clients         [2]modelClient
	writes          [2]modelWrite
	swept           int8 // the ETag that a sweep is about to delete
	twice           bool // a write has arrived twice already
}

func second(tick int8) int8 { return tick / 2 }

// live reports whether somebody who looks takes the object for a hold that goes on. A read that is
// torn has the time of the object before.
func (r rules) live(w *world, torn bool) bool {
	o := w.object
	if torn {
		o.written = w.before
	}
	if o.etag == 0 || o.released {
		return false
	}
	at := func(tick int8) time.Time { return time.Unix(0, 0).Add(time.Duration(tick) * time.Second / 2) }
	switch {
	case r.clientClock:
		return w.now+1-o.written < modelTTL
	case r.noSecond:
		return second(w.now)-second(o.written) < modelTTL/2
	default:
		return left(at(w.now), at(o.written), modelTTL*time.Second/2) > 0 // the driver's own
	}
}

// look is a read, after which the client knows what to write, or that it is over.
func (r rules) look(w *world, c *modelClient, torn bool) {
	o := w.object
	if o.etag != c.doubtful {
		c.doubt = false
	}
	mine, live := o.owner == c.claim && o.etag != 0, r.live(w, torn)
	c.etag, c.next, c.read = o.etag, none, w.now
	seen := c.expired == o.etag || r.oneLook
	c.expired = o.etag
	switch {
	case c.phase == releasing && mine && !o.released, c.phase == releasing && !c.granted && c.doubt && !live && !r.noBump:
		c.next, c.token = toRelease, o.token
	case c.phase == releasing:
		c.phase = over
	case live && !mine && !c.doubt:
		c.phase = over // ErrHeld
	case !live && o.etag != 0 && !o.released && !seen: // it looks again
	case !live || mine:
		c.next = toTake
		if c.token = o.token + 1; !r.countTokens {
			c.token = max(c.token, 4*second(w.now)+1)
		}
		if mine && live {
			c.token = o.token
		}
	}
}

// arrive is a write at the store. It returns what is wrong.
func (r rules) arrive(w *world, m *modelWrite) string {
	m.answered = true
	blind := r.noConditions || r.blindRelease && m.kind == toRelease
	late := w.now-m.read > modelLate && m.kind == toTake && !r.keepsSignatures
	if m.refused = late || m.over != w.object.etag && !blind; m.refused {
		return ""
	}
	for _, c := range w.clients {
		if c.claim == m.claim && c.phase == over && m.kind != toRelease {
			return "a late request takes the lock"
		}
	}
	if m.kind == toTake && (w.object.owner != m.claim || w.object.etag == 0) {
		if m.token <= w.top {
			return "a token does not rise"
		}
		w.top = m.token
	}
	w.etags++
	w.before = w.object.written
	w.object = modelObject{etag: w.etags, owner: m.claim, token: m.token, written: w.now, released: m.kind == toRelease}
	m.etag = w.etags
	if r.deleteInRelease && m.kind == toRelease {
		w.object = modelObject{}
	}
	return ""
}

// hear is a reply.
func (r rules) hear(w *world, c *modelClient, m modelWrite) string {
	c.waiting = 0
	mine := w.object.owner == c.claim && w.object.etag != 0
	if m.refused && (r.believe412 || !mine || w.object.released != (m.kind == toRelease)) {
		if m.kind == toTake && r.believe412 {
			c.phase, c.next = over, none
			if mine && r.live(w, false) {
				return "who holds the lock was told that another does"
			}
			return ""
		}
		if c.next = none; c.phase == holding {
			c.phase = over
		}
		return ""
	}
	if m.refused { // the read shows the claim's own write
		m.etag = w.object.etag
	}
	began := m.sent
	if r.fromReply {
		began = w.now
	}
	switch m.kind {
	case toTake:
		c.phase, c.granted, c.doubt, c.etag, c.deadline = holding, true, false, m.etag, began+modelTTL
	case toExtend:
		if c.etag = m.etag; c.phase == holding && c.deadline > w.now {
			c.deadline = max(c.deadline, began+modelTTL)
		}
	case toRelease:
		c.phase = over
	}
	return ""
}

// successors calls each with what may be next.
func (r rules) successors(w world, each func(world, string)) {
	step := func(do func(w *world) string) {
		next := w
		each(next, do(&next))
	}
	if w.now < modelEnd {
		step(func(w *world) string { w.now++; return "" })
	}
	if o := w.object; o.etag != 0 && !r.live(&w, false) && w.now-o.written > modelLate {
		step(func(w *world) string { w.swept = w.object.etag; return "" })
	}
	if w.swept != 0 && (w.swept == w.object.etag || r.blindSweep) {
		step(func(w *world) string { w.object, w.swept = modelObject{}, 0; return "" })
	}
	for i := range w.writes {
		m := w.writes[i]
		if m.kind == none {
			continue
		}
		if !m.answered {
			step(func(w *world) string { return r.arrive(w, &w.writes[i]) })
			if !w.twice {
				step(func(w *world) string { w.twice = true; first := m; return r.arrive(w, &first) })
			}
			continue
		}
		step(func(w *world) string { // the reply arrives, or nobody waits for it
			w.writes[i] = modelWrite{}
			for k := range w.clients {
				if c := &w.clients[k]; c.claim == m.claim && int(c.waiting) == i+1 {
					return r.hear(w, c, m)
				}
			}
			return ""
		})
	}
	for i := range w.clients {
		c := w.clients[i]
		send := func(kind modelKind, phase modelPhase) {
			for k := range w.writes {
				if w.writes[k].kind != none {
					continue
				}
				step(func(w *world) string {
					c := &w.clients[i]
					w.writes[k] = modelWrite{kind: kind, claim: c.claim, over: c.etag, token: c.token, sent: w.now, read: c.read}
					if kind == toTake {
						c.doubt, c.doubtful = true, c.etag
					}
					c.waiting, c.next, c.phase = int8(k+1), none, phase
					return ""
				})
				break
			}
		}
		switch {
		case c.phase == over:
			if c.claim < 3 { // a claim more, of a fresh owner
				step(func(w *world) string { w.clients[i] = modelClient{claim: c.claim + 2}; return "" })
			}
		case c.waiting > 0: // it waits no more
			step(func(w *world) string { w.clients[i].waiting = 0; return "" })
		case c.phase == holding:
			if c.deadline > w.now {
				send(toExtend, holding)
			}
			send(toRelease, releasing)
		case c.next == none:
			step(func(w *world) string { r.look(w, &w.clients[i], false); return "" })
			if w.before != w.object.written && (w.object.etag != c.expired || r.oneLook) {
				step(func(w *world) string { r.look(w, &w.clients[i], true); return "" })
			}
			if c.phase == asking && c.doubt {
				step(func(w *world) string { w.clients[i].phase = releasing; return "" })
			}
		default:
			send(c.next, c.phase)
		}
	}
}

// explore returns the first thing that is wrong, or only want if that is not empty, and how many
// states it has seen.
func (r rules) explore(want string, limit int) (wrong string, states int) {
	start := world{clients: [2]modelClient{{claim: 1}, {claim: 2}}}
	if r.aged {
		start.object = modelObject{etag: 1, owner: 5, token: 1, released: true}
		start.now, start.etags, start.top, start.swept = modelLate+1, 1, 1, 1
	}
	seen, todo := map[world]struct{}{start: {}}, []world{start}
	for len(todo) > 0 && wrong == "" && len(seen) < limit {
		w := todo[0]
		todo = todo[1:]
		r.successors(w, func(next world, says string) {
			a, b := next.clients[0], next.clients[1]
			holds := func(c modelClient) bool { return c.phase == holding && c.deadline > next.now }
			if says == "" && holds(a) && holds(b) {
				says = "two hold the lock"
			}
			if says != "" && wrong == "" && (want == "" || want == says) {
				wrong = says
			}
			if _, ok := seen[next]; !ok {
				seen[next] = struct{}{}
				todo = append(todo, next)
			}
		})
	}
	return wrong, len(seen)
}

// exhaustive is set by make nightly.
var exhaustive = os.Getenv("LOCKER_EXHAUSTIVE") != ""

func TestModel(t *testing.T) {
	limit := 50_000
	if exhaustive {
		limit = 4_000_000
	}
	wrong, states := rules{}.explore("", limit)
	require.Empty(t, wrong)
	t.Log(states, "states")
}

func TestModel_eachRuleIsNeeded(t *testing.T) {
	broken := map[string][]rules{
		"two hold the lock":                             {{clientClock: true}, {noConditions: true}},
		"a token does not rise":                         {{deleteInRelease: true}},
		"a late request takes the lock":                 {{noBump: true}},
		"who holds the lock was told that another does": {{believe412: true}},
	}
	if exhaustive {
		broken["two hold the lock"] = []rules{{noSecond: true}, {oneLook: true}, {fromReply: true}}
		broken["a token does not rise"] = []rules{{countTokens: true}, {keepsSignatures: true}, {blindRelease: true}, {blindSweep: true, aged: true}}
	}
	for want, relaxed := range broken {
		for _, r := range relaxed {
			wrong, states := r.explore(want, 4_000_000)
			assert.Equal(t, want, wrong, "%+v", r)
			t.Logf("%+v: %d states", r, states)
		}
	}
}
