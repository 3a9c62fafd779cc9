package postgres

import (
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
	reclaims       int8
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
	reclaims     int8 // the era for which a reclaim was sent
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
