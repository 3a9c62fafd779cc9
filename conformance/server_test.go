package conformance_test

import (
	"encoding/gob"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/program"
)

// server has a store, and listens while something uses it.
type server struct {
	mu       sync.Mutex
	store    store
	alter    func(*patched) // nil, or what is done to each Locker of this process
	users    int
	address  string
	reserved net.PacketConn // the address, among the tests of all processes, also while it is down; as in testserver
	listener net.Listener   // nil: it does not run
	down     bool           // and is not to
	conns    map[net.Conn]struct{}
	silent   chan struct{} // nil: it answers
}

func newServer(flaw string) *server { return &server{store: newStore(flaw)} }

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
		s.store.hangUp(conn)
	}()
	questions, answers := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var q question
		if questions.Decode(&q) != nil {
			return
		}
		s.awaitSound()
		a, ok := s.answer(q, conn)
		if !ok || answers.Encode(a) != nil {
			return
		}
	}
}

// answer does what is asked, unless the connection is no more.
func (s *server) answer(q question, conn net.Conn) (a answer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[conn]; !ok {
		return a, false
	}
	return s.store.answer(q, conn), true
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
		t.Fatalf("a server of locks: %v", err)
	}
	return address
}

// What a process of such Lockers is told.
const (
	servedAddress = "LOCKER_TEST_ADDRESS"
	servedFlaw    = "LOCKER_TEST_FLAW"
	servedBare    = "LOCKER_TEST_BARE" // not empty: its Lockers have no shares
)

func TestMain(m *testing.M) {
	standAside()
	serveProgram()
	program.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		l := dial(t, os.Getenv(servedAddress), os.Getenv(servedFlaw), ttl, false)(name)
		if os.Getenv(servedBare) != "" {
			return bare{l}
		}
		return l
	})
	os.Exit(m.Run())
}

// served is the harness of the locks of a server with a flaw, or none.
func served(flaw string) conformance.Harness { return newServer(flaw).harness() }

func (s *server) harness() conformance.Harness {
	flaw := s.store.flaw
	client := func(t conformance.TB, ttl time.Duration, renew bool, address string) func(string) *patched {
		of := dial(t, address, flaw, ttl, renew)
		return func(name string) *patched {
			p := of(name)
			if s.alter != nil {
				s.alter(p)
			}
			return p
		}
	}
	clientOf := func(t conformance.TB, ttl time.Duration, renew bool, address string) func(string) locker.Locker {
		of := client(t, ttl, renew, address)
		return func(name string) locker.Locker { return of(name) }
	}
	h := conformance.Harness{
		TTL:      memoryTTL,
		Promises: locker.Guarantees{},
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return client(t, ttl, false, s.use(t))(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return clientOf(t, ttl, renew, s.use(t))
		},
		RW: func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return client(t, ttl, false, s.use(t))(name)
		},
		Faults: s.faults(),
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return client(t, ttl, false, via(s.use(t)))(name)
	}
	h.Faults.ThroughClient = func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
		return clientOf(t, ttl, renew, via(s.use(t)))
	}
	h.Faults.Process = func(t conformance.TB) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), servedAddress+"="+s.use(t), servedFlaw+"="+flaw)
		return cmd
	}
	return h
}

// faults are those of the server itself.
func (s *server) faults() conformance.Faults {
	return conformance.Faults{
		StopServer: func(conformance.TB) func() { return s.silence() },
		KillServer: func(t conformance.TB) func() {
			s.crash(s.store.crash)
			return func() { s.restart(t) }
		},
		WipeServer: func(t conformance.TB) func() {
			s.crash(s.store.wipe)
			return func() { s.restart(t) }
		},
		FailOver: func(t conformance.TB) func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			takeOver := s.store.replicate()
			return func() {
				s.crash(takeOver)
				s.restart(t)
			}
		},
		MoveClock: func(_ conformance.TB, d time.Duration) func() {
			s.moveClock(d)
			return func() { s.moveClock(-d) }
		},
		Revoke: func(_ conformance.TB, name string) { s.revoke(name) },
	}
}

// prefix is what a Client puts in front of a name.
const prefix = "locker:"

// revoke ends all holds of a name.
func (s *server) revoke(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.answer(question{Op: "delete", Name: prefix + name}, nil)
}

// silence has the server take in everything, and answer when it is told to go on.
func (s *server) silence() (resume func()) {
	silent := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silent = nil
		close(silent)
	}
}

// awaitSound returns when the server answers.
func (s *server) awaitSound() {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// crash ends the server, and does something to its data.
func (s *server) crash(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.stop()
	do()
}

func (s *server) restart(t conformance.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	if err := s.start(); err != nil {
		t.Fatalf("the server does not start again: %v", err)
	}
}

func (s *server) moveClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.wrong += d
}
