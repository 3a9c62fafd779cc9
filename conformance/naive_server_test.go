package conformance_test

import (
	"encoding/gob"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance"
)

// question is what a naive lock asks its server.
type question struct {
	Op, Name, Owner string
	TTL             time.Duration
	NotAfter        time.Duration // by the server's clock: when to refuse a take; 0: never
	Again           bool          // it may have arrived before
	Shared          bool          // it is of a share
}

// answer is what the server says to it.
type answer struct {
	OK      bool
	Refused bool // what was asked for cannot be decided: it came too late, or the server remembers too little
	Token   uint64
	Now     time.Duration // by the server's clock
}

// server is that of naive locks. It runs while something uses it. Its clock for holds is that of the
// machine; tokens come of its wall clock, which can be wrong.
type server struct {
	flaw string
	late time.Duration // how long after its TTL an entry expires

	mu       sync.Mutex
	users    int
	address  string
	reserved net.PacketConn // the address, among the tests of all processes, also while it is down; as in testserver
	listener net.Listener   // nil: it does not run
	down     bool           // and is not to
	conns    map[net.Conn]struct{}
	silent   chan struct{} // nil: it answers
	wrong    time.Duration // what its wall clock is wrong by
	quiet    time.Duration // until when it grants nothing
	longest  time.Duration // TTL that was asked for
	data     rows
	wanted   map[string]string // by name, the holder for whom another was refused
}

// rows is what the server remembers.
type rows struct {
	locks map[string]entry
	last  map[string]uint64   // token, by name
	ended map[string]bool     // owners whose hold was released, or never to be
	queue map[string][]string // owners that wait, by name; for a flaw

	shares map[string][]entry // by name
}

type entry struct {
	owner string
	token uint64
	until time.Duration // 0: for ever
	conn  net.Conn      // that it was taken on
}

func noRows() rows {
	return rows{map[string]entry{}, map[string]uint64{}, map[string]bool{}, map[string][]string{}, map[string][]entry{}}
}

func (r rows) clone() rows {
	return rows{maps.Clone(r.locks), maps.Clone(r.last), maps.Clone(r.ended), maps.Clone(r.queue), maps.Clone(r.shares)}
}

// booted is when the machine's clock was 0.
var booted = time.Now()

// clock is what holds are counted by. The caller holds s.mu, here and below.
func (s *server) clock() time.Duration {
	now := time.Since(booted)
	if s.flaw == "expires by the wall clock" {
		now += s.wrong
	}
	return now
}

// at returns the entry that has not expired.
func (s *server) at(name string) (e entry, ok bool) {
	e, ok = s.data.locks[name]
	if !ok || e.until != 0 && s.clock() >= e.until+s.late {
		return entry{}, false
	}
	return e, true
}

// answer does what is asked, unless the connection is no more.
func (s *server) answer(q question, conn net.Conn) (a answer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[conn]; !ok {
		return a, false
	}
	e, found := s.at(q.Name)
	own := found && e.owner == q.Owner
	if q.Shared || slices.ContainsFunc(s.data.shares[q.Name], func(e entry) bool { return e.owner == q.Owner }) {
		a = s.share(q, e, found)
		a.Now = s.clock()
		return a, true
	}
	switch q.Op {
	case "take":
		a = s.take(q, e, found, conn)
	case "extend":
		if s.flaw == "Extend revives what expired" && !found {
			e = s.data.locks[q.Name]
			own = e.owner == q.Owner
		}
		if a.OK = own; own {
			s.extend(q, e)
		}
	case "release":
		if own {
			delete(s.data.locks, q.Name)
		}
		a.OK = own || s.data.ended[q.Owner] && s.flaw != "what was released is not held" || q.Again && strings.HasSuffix(s.flaw, "what is sent again was done")
		s.data.ended[q.Owner] = own || s.data.ended[q.Owner]
		s.leave(q)
	default:
		a = s.flawed(q, e, found, conn)
	}
	a.Now = s.clock()
	return a, true
}

// take grants the lock, or again to who has it: the answer may have been lost. It grants nothing to an owner who has
// given it up.
func (s *server) take(q question, e entry, found bool, conn net.Conn) answer {
	_, gaveUp := s.data.ended[q.Owner]
	gaveUp = gaveUp && !takesLate[s.flaw]
	switch {
	case found && e.owner == q.Owner:
		s.prolong(q, e)
		return answer{OK: true, Token: e.token}
	case found && s.flaw == "a refused take prolongs the hold":
		s.prolong(q, e)
	case strings.HasPrefix(s.flaw, "owner is the"): // the same for all its holds
	case gaveUp, q.NotAfter > 0 && s.clock() > q.NotAfter, s.clock() < s.quiet:
		return answer{Refused: true}
	}
	robs := s.flaw == "one take in two hundred does not look" && rand.N(200) == 0
	if first := s.turn(q); (found || len(s.sharesOf(q.Name)) > 0) && !robs || !first {
		if s.wanted == nil {
			s.wanted = map[string]string{}
		}
		s.wanted[q.Name] = e.owner
		return answer{}
	}
	return s.grant(q, conn)
}

// grant makes the owner the holder, also if another held before.
func (s *server) grant(q question, conn net.Conn) answer {
	if s.flaw == "tokens are forgotten after a minute" {
		old := s.now(-time.Minute)
		maps.DeleteFunc(s.data.last, func(_ string, token uint64) bool { return token < old })
	}
	s.data.last[q.Name] = s.mint(q.Name)
	e := entry{owner: q.Owner, token: s.data.last[q.Name], conn: conn}
	s.prolong(q, e)
	return answer{OK: true, Token: e.token}
}

// takesLate are the flaws with which a take is granted however late it arrives, even if its owner has given it up.
var takesLate = map[string]bool{
	"a take is granted however late": true, "looks, then takes, however late": true, "SETNX, then EXPIRE, with clean-up": true, "a share never expires": true,
}

// extend has a hold last one TTL from now.
func (s *server) extend(q question, e entry) {
	s.prolong(q, e)
	if s.flaw == "Extend counts from the old deadline" {
		s.data.locks[q.Name] = entry{e.owner, e.token, e.until + q.TTL, e.conn}
	}
}

func (s *server) prolong(q question, e entry) {
	s.longest = max(s.longest, q.TTL)
	e.until = s.clock() + q.TTL
	if q.TTL == 0 || s.flaw == "never expires" {
		e.until = 0
	}
	s.data.locks[q.Name] = e
}

// now returns what the wall clock shows, and some more, as a token.
func (s *server) now(more time.Duration) uint64 {
	return uint64(time.Now().Add(s.wrong + more).UnixMicro())
}

// mint returns the token of the next hold.
func (s *server) mint(name string) uint64 {
	now, next := s.now(0), s.data.last[name]+1
	switch s.flaw {
	case "tokens have eleven digits":
		return max(now, next) / 100000 * 100000
	case "tokens are compared as strings":
		last := strconv.FormatUint(s.data.last[name], 10)
		if next := strconv.FormatUint(next, 10); next < last {
			return s.data.last[name]
		}
		return next
	case "tokens are counted", "tokens are counted in memory", "tokens are counted, and replicated later":
		return next
	case "tokens are the time":
		return now
	default:
		return max(now, next)
	}
}

// turn reports whether the owner may take the lock, for all that others wait: always, but for a flaw, which
// keeps them in a queue until they release what they got.
func (s *server) turn(q question) (first bool) {
	switch {
	case s.flaw == "a writer that was refused keeps readers out until it gives up" && q.Shared:
		return len(s.data.queue[q.Name]) == 0
	case s.flaw == "a writer that was refused keeps readers out until it gives up" && len(s.sharesOf(q.Name)) > 0:
		s.data.queue[q.Name] = append(s.data.queue[q.Name], q.Owner)
		return true
	case s.flaw != "a queue that the dead stay in":
		return true
	}
	if !slices.Contains(s.data.queue[q.Name], q.Owner) {
		s.data.queue[q.Name] = append(s.data.queue[q.Name], q.Owner)
	}
	return s.data.queue[q.Name][0] == q.Owner
}

func (s *server) leave(q question) {
	s.data.queue[q.Name] = slices.DeleteFunc(s.data.queue[q.Name], func(o string) bool { return o == q.Owner })
}

// flawed is what only locks with a flaw ask for.
func (s *server) flawed(q question, e entry, found bool, conn net.Conn) answer {
	switch {
	case q.Op == "seize":
		return s.grant(q, conn)
	case q.Op == "wanted":
		return answer{OK: s.wanted[q.Name] == q.Owner}
	case q.Op == "look":
		return answer{OK: found && e.owner == q.Owner, Token: e.token}
	case q.Op == "delete":
		delete(s.data.locks, q.Name)
	case q.Op == "prolong" && found:
		s.prolong(q, e)
	case q.Op == "mint":
		s.data.last[q.Name] = s.mint(q.Name)
		return answer{OK: true, Token: s.data.last[q.Name]}
	case q.Op == "set":
		s.prolong(q, entry{owner: q.Owner, token: e.token})
	}
	return answer{OK: true, Token: e.token}
}

// ports are not among those that a system gives to clients.
var ports atomic.Int64

func init() { ports.Store(20000 + rand.Int64N(10000)) }

// start has the server listen, where it always does. A program that reserves nothing may be there for a while.
func (s *server) start() (err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		address, reserved := s.address, s.reserved
		if address == "" {
			address = net.JoinHostPort("127.0.0.1", strconv.FormatInt(12000+ports.Add(1)%20000, 10))
			if reserved, err = net.ListenPacket("udp4", address); err != nil {
				continue
			}
		}
		if s.listener, err = net.Listen("tcp4", address); err == nil {
			s.address, s.reserved, s.conns = address, reserved, map[net.Conn]struct{}{}
			go s.accept(s.listener)
			return nil
		}
		if s.address == "" {
			_ = reserved.Close()
		}
	}
	return err
}

func (s *server) stop() {
	if s.listener == nil {
		return
	}
	_ = s.listener.Close()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.listener, s.conns = nil, nil
}

func (s *server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		current := s.listener == listener
		if current {
			s.conns[conn] = struct{}{}
		}
		s.mu.Unlock()
		if !current {
			_ = conn.Close()
			return
		}
		go s.converse(conn)
	}
}

func (s *server) converse(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
		if s.flaw == "a hold ends with its connection" {
			maps.DeleteFunc(s.data.locks, func(_ string, e entry) bool { return e.conn == conn })
		}
	}()
	questions, answers := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var q question
		if questions.Decode(&q) != nil {
			return
		}
		s.mu.Lock()
		silent := s.silent
		s.mu.Unlock()
		if silent != nil {
			<-silent
		}
		a, ok := s.answer(q, conn)
		if !ok || answers.Encode(a) != nil {
			return
		}
	}
}

// use has the server run until t ends.
func (s *server) use(t conformance.TB) (address string) {
	s.mu.Lock()
	var err error
	if s.listener == nil && !s.down {
		err = s.start()
	}
	s.users++
	address = s.address
	s.mu.Unlock()
	t.Cleanup(func() { // at once, if t has ended
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			s.stop()
		}
	})
	if err != nil {
		t.Fatalf("a server of naive locks: %v", err)
	}
	return address
}
