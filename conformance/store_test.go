package conformance_test

import (
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// question is a request of a claim to its server.
type question struct {
	Op, Name, Owner string
	TTL             time.Duration // 0: without end
	NotAfter        time.Duration // server time after which a take is refused; 0: none
	Shared          bool          // it concerns a share
	Waits           bool          // a take that fails is given a place in the queue
	Again           bool          // it may have arrived before
}

// answer is the server's reply.
type answer struct {
	OK      bool
	Refused bool // the take came too late, or its owner has given it up
	Full    bool // the server does nothing that has to be stored
	Token   uint64
	Now     time.Duration // by the server's clock
}

// store is what a server knows: a read-write lock for each name, whose waiters poll, first come
// first served. A waiter that has not asked for one TTL loses its place. With no flaw it keeps the
// contract. The server's mutex guards it.
type store struct {
	flaw    string
	late    time.Duration // how long after its TTL a hold expires
	wrong   time.Duration // what the wall clock is wrong by; tokens come from that
	quiet   time.Duration // until when nothing is granted
	longest time.Duration // TTL that was asked for
	asked   int
	full    bool
	names   map[string]lock
	ended   map[string]bool // owners that have released; true: while they held
}

// lock is one name.
type lock struct {
	holds, queue []grant
	last         uint64        // token
	lastShared   bool          // the last grant was a share
	letIn        time.Duration // when a waiter was last granted
	read, wrote  time.Duration // when there was last a share, and another hold
}

// grant is a hold, or a waiter.
type grant struct {
	owner  string
	shared bool
	ttl    time.Duration
	token  uint64
	until  time.Duration // 0: without end
	seen   time.Duration // when the waiter asked last
	asleep bool          // a flaw has the waiter wait for ever
	conn   net.Conn      // that it was granted on
}

func newStore(flaw string) store {
	return store{flaw: flaw, names: map[string]lock{}, ended: map[string]bool{}}
}

// clock returns what holds are counted by.
func (s *store) clock() time.Duration {
	now := time.Since(booted)
	if s.flaw == "expires by the wall clock" {
		now += s.wrong
	}
	return now
}

// booted is when the machine's clock was 0.
var booted = time.Now()

// wallClock returns what the wall clock shows, as a token.
func (s *store) wallClock() uint64 { return uint64(time.Now().Add(s.wrong).UnixMicro()) }

// expired returns the lock without the holds whose time is over, and the waiters that ask no more.
func (s *store) expired(l lock) lock {
	now, before := s.clock(), len(l.holds)
	l.holds = slices.DeleteFunc(slices.Clone(l.holds), func(h grant) bool {
		return h.until != 0 && now >= h.until+s.late && !(h.shared && s.flaw == "a share never expires")
	})
	l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(w grant) bool {
		return now > w.seen+w.ttl && s.flaw != "a queue that the dead stay in" && s.flaw != "a reader that gives up keeps its place"
	})
	if len(l.holds) < before && s.flaw == "of a run of readers an expiry lets in the first" {
		l.sleep(1, true)
	}
	return l
}

// sleep has readers, or the writers, from a place in the queue on wait for ever.
func (l *lock) sleep(from int, shared bool) {
	for i := from; i < len(l.queue); i++ {
		l.queue[i].asleep = l.queue[i].asleep || l.queue[i].shared == shared
	}
}

func by(owner string) func(grant) bool { return func(g grant) bool { return g.owner == owner } }

// answer does what is asked.
func (s *store) answer(q question, conn net.Conn) (a answer) {
	l := s.expired(s.names[q.Name])
	for _, h := range l.holds {
		if h.shared {
			l.read = s.clock()
		} else {
			l.wrote = s.clock()
		}
	}
	own := slices.IndexFunc(l.holds, by(q.Owner))
	if a.Full = s.full && slices.Contains([]string{"take", "extend", "release"}, q.Op); a.Full {
		return a
	}
	switch q.Op {
	case "take":
		a = s.take(&l, q, own, conn)
	case "extend":
		a.OK = s.extend(&l, q, own)
	case "release":
		a.OK = s.release(&l, q, own)
	case "downgrade":
		a.OK = own >= 0 && !(q.Again && s.flaw == "a downgrade that is sent again is refused")
		if own < 0 && s.flaw == "a downgrade checks no owner" && len(l.holds) > 0 {
			own = 0
		}
		if own >= 0 {
			s.downgrade(&l, &l.holds[own])
		}
	case "waits":
		a.OK = len(l.queue) > 0
	case "look":
		if a.OK = own >= 0; len(l.holds) > 0 {
			a.Token = l.holds[0].token
		}
	case "seize":
		l.holds = nil
		a = s.grant(&l, grant{owner: q.Owner, ttl: q.TTL, conn: conn})
	case "delete":
		if l.holds = nil; s.flaw == "a revocation wakes nobody" {
			l.sleep(0, true)
			l.sleep(0, false)
		}
	case "prolong":
		if a.OK = true; len(l.holds) > 0 {
			s.prolong(&l.holds[0], q.TTL)
		}
	}
	s.names[q.Name] = l
	a.Now = s.clock()
	return a
}

// takesLate are the flaws with which a take is granted however late it arrives, even if its owner
// has given it up.
func takesLate(flaw string) bool {
	return slices.Contains([]string{
		"a take is granted however late", "SETNX, then EXPIRE, with clean-up", "a share never expires",
	}, flaw)
}

// take grants the lock, or again to its holder: the reply may have been lost.
func (s *store) take(l *lock, q question, own int, conn net.Conn) answer {
	now := s.clock()
	_, gaveUp := s.ended[q.Owner]
	switch {
	case own >= 0:
		if s.flaw != "a take that is sent again counts from then" {
			s.prolong(&l.holds[own], q.TTL)
		}
		return answer{OK: true, Token: l.holds[own].token}
	case strings.HasPrefix(s.flaw, "owner is the"): // of all holds
	case gaveUp && !takesLate(s.flaw), q.NotAfter > 0 && now > q.NotAfter, now < s.quiet:
		return answer{Refused: true}
	}
	g := grant{owner: q.Owner, shared: q.Shared, conn: conn}
	place := slices.IndexFunc(l.queue, by(q.Owner))
	waited := place >= 0
	switch {
	case waited:
		g = l.queue[place]
	case s.flaw == "writers pass readers" && !q.Shared:
		place = slices.IndexFunc(append(slices.Clone(l.queue), grant{shared: true}), func(w grant) bool { return w.shared })
	default:
		place = len(l.queue)
	}
	g.ttl, g.seen = q.TTL, now
	if s.flaw == "one take in two hundred does not look" && rand.N(200) == 0 {
		l.holds = nil
	}
	if !g.asleep && s.admits(l, g) && s.first(l, g, place) {
		if waited {
			l.queue, l.letIn = slices.Delete(l.queue, place, place+1), now
		}
		return s.grant(l, g)
	}
	if len(l.holds) > 0 && s.flaw == "a refused take prolongs the hold" {
		s.prolong(&l.holds[0], q.TTL)
	}
	switch keeps := s.flaw == "a writer that was refused keeps readers out until it gives up" && !q.Shared; {
	case waited:
		l.queue[place] = g
	case q.Waits, keeps:
		l.queue = slices.Insert(l.queue, place, g)
	}
	return answer{}
}

// admits reports whether g can be granted beside the holds.
func (s *store) admits(l *lock, g grant) bool {
	const while = 200 * time.Millisecond
	alone := slices.ContainsFunc(l.holds, func(h grant) bool { return !h.shared })
	switch {
	case !g.shared && s.flaw == "a writer waits until there was no reader for a while":
		return s.clock() > l.read+while && !alone
	case g.shared && s.flaw == "a reader waits until there was no writer for a while":
		return s.clock() > l.wrote+while
	case len(l.holds) == 0:
		return true
	case g.shared && s.flaw == "at most five readers":
		return !alone && len(l.holds) < 5
	case g.shared:
		return s.flaw != "readers exclude each other" && (!alone || s.flaw == "readers come in beside a writer")
	case s.flaw == "a writer comes in beside readers":
		return !alone
	case s.flaw == "one writer in thirty comes in beside readers":
		return !alone && s.rarely()
	}
	return false
}

// rarely is true one time in thirty.
func (s *store) rarely() bool {
	s.asked++
	return s.asked%30 == 0
}

// first reports whether g, at a place of the queue, need not wait for those before it.
func (s *store) first(l *lock, g grant, place int) bool {
	switch {
	case s.flaw == "nobody queues",
		g.shared && s.flaw == "readers are admitted while a writer is first",
		g.shared && s.flaw == "a writer waits until there was no reader for a while",
		!g.shared && s.flaw == "a reader waits until there was no writer for a while",
		g.shared && s.flaw == "readers are admitted while others are let in" && s.clock()-l.letIn < memoryTTL/10:
		return true
	}
	return !slices.ContainsFunc(l.queue[:place], func(w grant) bool { return !g.shared || !w.shared })
}

func (s *store) grant(l *lock, g grant) answer {
	beside := g.shared && len(l.holds) > 0
	switch {
	case beside && s.flaw == "one token in thirty is the reader's own" && s.rarely(),
		beside && s.flaw == "another token from the fifth reader on" && len(l.holds) == 4,
		beside && s.flaw == "a token for each reader":
		l.last++
	case beside:
		l.last = l.holds[0].token
	case !g.shared && l.lastShared && s.flaw == "the next writer has the readers' token":
	default:
		l.last = s.mint(l.last)
	}
	l.lastShared, g.token = g.shared, l.last
	s.prolong(&g, g.ttl)
	l.holds = append(l.holds, g)
	return answer{OK: true, Token: g.token}
}

// mint returns the token after the last one of a name.
func (s *store) mint(last uint64) uint64 {
	switch s.flaw {
	case "tokens have eleven digits":
		return max(s.wallClock(), last+1) / 100000 * 100000
	case "tokens are compared as strings":
		if strconv.FormatUint(last+1, 10) < strconv.FormatUint(last, 10) {
			return last
		}
		return last + 1
	case "tokens are counted", "tokens are counted in memory", "tokens are counted, and replicated later":
		return last + 1
	case "tokens are the time":
		return s.wallClock()
	case "tokens are forgotten after a minute":
		// The name was forgotten while the clock was ahead.
		if last > s.wallClock()+uint64(time.Minute.Microseconds()) {
			return s.wallClock()
		}
	}
	return max(s.wallClock(), last+1)
}

func (s *store) prolong(h *grant, ttl time.Duration) {
	s.longest = max(s.longest, ttl)
	h.until = s.clock() + ttl
	if ttl == 0 || s.flaw == "never expires" {
		h.until = 0
	}
}

// cut has no hold last longer.
func (l *lock) cut(until time.Duration) {
	for i := range l.holds {
		l.holds[i].until = min(l.holds[i].until, until)
	}
}

func (s *store) extend(l *lock, q question, own int) bool {
	switch {
	case own >= 0:
	case s.flaw == "Extend sets what is gone", s.flaw == "Extend revives what expired" && len(l.holds) == 0:
		l.holds, own = []grant{{owner: q.Owner, shared: q.Shared, token: l.last}}, 0
	default:
		return false
	}
	h := &l.holds[own]
	old := h.until
	s.prolong(h, q.TTL)
	switch s.flaw {
	case "Extend counts from the old deadline":
		h.until = old + q.TTL
	case "an Extend cuts the shares of others":
		l.cut(h.until)
	case "one TTL for all readers":
		for i := range l.holds {
			l.holds[i].until = max(l.holds[i].until, h.until)
		}
	}
	return true
}

// release ends a hold, or a wait, and reports whether the owner held.
func (s *store) release(l *lock, q question, own int) bool {
	ok := own >= 0 || s.ended[q.Owner] && s.flaw != "what was released is not held" || q.Again && strings.HasSuffix(s.flaw, "what is sent again was done")
	s.ended[q.Owner] = own >= 0 || s.ended[q.Owner]
	if own < 0 && q.Shared && len(l.holds) > 0 &&
		(s.flaw == "a release is a count" || q.Again && s.flaw == "a release that is sent again ends a share of another's") {
		own = 0
	}
	if own >= 0 {
		reader := l.holds[own].shared
		l.holds = slices.Delete(l.holds, own, own+1)
		switch {
		case reader && s.flaw == "the last reader wakes no writer":
			l.sleep(0, false)
		case !reader && s.flaw == "of a run of readers only the first is woken":
			l.sleep(1, true)
		}
	}
	if slices.ContainsFunc(l.queue, by(q.Owner)) {
		s.giveUp(l, q)
	}
	return ok
}

// giveUp ends a wait.
func (s *store) giveUp(l *lock, q question) {
	if q.Shared && s.flaw == "a reader that gives up keeps its place" {
		return
	}
	l.queue = slices.DeleteFunc(l.queue, by(q.Owner))
	switch {
	case q.Shared && s.flaw == "a reader that gives up takes its neighbours along", !q.Shared && s.flaw == "a writer that gives up wakes nobody":
		l.sleep(0, true)
	case !q.Shared && s.flaw == "a writer that gives up lets in all readers":
		slices.SortStableFunc(l.queue, func(a, b grant) int {
			switch {
			case a.shared == b.shared:
				return 0
			case a.shared:
				return -1
			}
			return 1
		})
	}
}

// downgrade makes a hold a share.
func (s *store) downgrade(l *lock, h *grant) {
	h.shared, l.lastShared = true, true
	switch s.flaw {
	case "a downgrade cuts the TTL":
		h.until = s.clock() + h.ttl/4
	case "a downgrade has a new token":
		l.last++
		h.token = l.last
	case "a downgrade wakes nobody":
		l.sleep(0, true)
	case "a downgrade is a release and a take":
		if len(l.queue) > 0 && !l.queue[0].shared {
			first := l.queue[0]
			l.queue = l.queue[1:]
			s.grant(l, first)
		}
	}
}

// hangUp ends what a flaw has end with its connection.
func (s *store) hangUp(conn net.Conn) {
	if s.flaw != "a hold ends with its connection" {
		return
	}
	for name, l := range s.names {
		l.holds = slices.DeleteFunc(l.holds, func(h grant) bool { return h.conn == conn })
		s.names[name] = l
	}
}

// crash does what a restart may do to data that should be kept.
func (s *store) crash() {
	for name, l := range s.names {
		switch s.flaw {
		case "holds are not kept":
			l.holds = nil
		case "tokens are counted in memory":
			l.last = 0
		}
		s.names[name] = l
	}
}

// wipe forgets everything. Until all that may have been granted has expired nothing is granted.
func (s *store) wipe() {
	s.names, s.ended = map[string]lock{}, map[string]bool{}
	if s.flaw != "grants though it has lost its data" {
		s.quiet = s.clock() + s.longest + s.late
	}
}

// replicate returns a failover to a replica that knows all that the store does, unless there is a
// flaw.
func (s *store) replicate() (takeOver func()) {
	behind, ended := maps.Clone(s.names), maps.Clone(s.ended)
	for name, l := range behind {
		l.holds, l.queue = slices.Clone(l.holds), slices.Clone(l.queue)
		behind[name] = l
	}
	return func() {
		switch {
		case strings.HasPrefix(s.flaw, "an asynchronous replica"):
			s.names, s.ended = behind, ended
		case s.flaw == "tokens are counted, and replicated later":
			for name, l := range s.names {
				l.last = behind[name].last
				s.names[name] = l
			}
		}
	}
}
