package conformance_test

import (
	"encoding/gob"
	"net"
	"os"
	"os/exec"
	"sync"
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
	listener net.Listener // nil: nobody uses it
	conns    map[net.Conn]struct{}
	down     bool          // it hangs up on those who connect
	silent   chan struct{} // nil: it answers
}

func newServer(flaw string) *server {
	return &server{store: newStore(flaw), conns: map[net.Conn]struct{}{}}
}

// hangUp ends all conversations.
func (s *server) hangUp() {
	for conn := range s.conns {
		_ = conn.Close()
	}
	clear(s.conns)
}

func (s *server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		up := s.listener == listener && !s.down
		if up {
			s.conns[conn] = struct{}{}
		}
		s.mu.Unlock()
		if up {
			go s.converse(conn)
		} else {
			_ = conn.Close()
		}
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

// use has the server listen until t ends.
func (s *server) use(t conformance.TB) (address string) {
	s.mu.Lock()
	var err error
	if s.listener == nil {
		if s.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err == nil {
			go s.accept(s.listener)
		}
	}
	if err == nil {
		s.users++
		address = s.listener.Addr().String()
	}
	s.mu.Unlock()
	if err != nil {
		t.Fatalf("a server of locks: %v", err)
	}
	t.Cleanup(func() { // at once, if t has ended
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			_ = s.listener.Close()
			s.listener = nil
			s.hangUp()
		}
	})
	return address
}

// The environment of a process of such Lockers.
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
		KillServer: func(conformance.TB) func() {
			s.crash(s.store.crash)
			return s.restart
		},
		WipeServer: func(conformance.TB) func() {
			s.crash(s.store.wipe)
			return s.restart
		},
		Refuse: func(conformance.TB) func() {
			s.fill(true)
			return func() { s.fill(false) }
		},
		FailOver: func(conformance.TB) func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			takeOver := s.store.replicate()
			return func() {
				s.crash(takeOver)
				s.restart()
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

// silence has the server take in requests, and answer them when resume is called.
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

// crash ends all conversations, and does something to the data. Connections that are not accepted
// yet came before its own, and are hung up on, too.
func (s *server) crash(do func()) {
	s.mu.Lock()
	s.down = true
	s.hangUp()
	do()
	listener := s.listener
	s.mu.Unlock()
	if listener == nil {
		return
	}
	if conn, err := net.Dial("tcp4", listener.Addr().String()); err == nil {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
}

func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *server) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.full = full
}

func (s *server) moveClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.wrong += d
}
