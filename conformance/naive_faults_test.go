package conformance_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// What a process of naive locks is told.
const (
	naiveAddress   = "LOCKER_NAIVE_ADDRESS"
	naiveFlaw      = "LOCKER_NAIVE_FLAW"
	naiveHasShares = "LOCKER_NAIVE_SHARES" // not empty: its Lockers have shares
)

func TestMain(m *testing.M) {
	standAside()
	conformance.ServeTold()
	serveProgram()
	conformance.Serve(servedNaive)
	os.Exit(m.Run())
}

// naiveLock is one with a client of its own.
func naiveLock(t conformance.TB, name string, ttl time.Duration, address, flaw string) *naive {
	c := dial(address, flaw)
	t.Cleanup(c.close)
	return &naive{name: name, ttl: ttl, flaw: flaw, client: c}
}

// naiveClientOf makes naive locks of one client.
func naiveClientOf(t conformance.TB, ttl time.Duration, address, flaw string, renew bool) func(string) locker.Locker {
	c := dial(address, flaw)
	t.Cleanup(c.close)
	return func(name string) locker.Locker {
		return &naive{name: name, ttl: ttl, flaw: flaw, renew: renew, client: c}
	}
}

// naiveLocks is the harness of naive locks with a flaw, or none, that expire late by at most late.
func naiveLocks(flaw string, late time.Duration) conformance.Harness {
	return naiveAt(&server{flaw: flaw, late: late, data: noRows()})
}

// naiveAt is the harness of naive locks of s.
func naiveAt(s *server) conformance.Harness {
	flaw := s.flaw
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return naiveLock(t, name, ttl, s.use(t), flaw)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return naiveClientOf(t, ttl, s.use(t), flaw, renew)
		},
		Faults: s.faults(),
	}
}

func (s *server) faults() conformance.Faults {
	return conformance.Faults{
		StopServer: func(conformance.TB) func() { return s.silence() },
		KillServer: func(t conformance.TB) func() {
			s.crash(s.forget)
			return func() { s.restart(t) }
		},
		WipeServer: func(t conformance.TB) func() {
			s.crash(s.wipe)
			return func() { s.restart(t) }
		},
		FailOver: s.failOver,
		MoveClock: func(_ conformance.TB, d time.Duration) func() {
			s.moveClock(d)
			return func() { s.moveClock(-d) }
		},
		Revoke: func(_ conformance.TB, name string) { s.forgetLock(name) },
		Through: func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return naiveLock(t, name, ttl, via(s.use(t)), s.flaw)
		},
		ThroughClient: func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
			return naiveClientOf(t, ttl, via(s.use(t)), s.flaw, renew)
		},
		Process: func(t conformance.TB) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), naiveAddress+"="+s.use(t), naiveFlaw+"="+s.flaw)
			return cmd
		},
	}
}

// forgetLock ends the hold of a name.
func (s *server) forgetLock(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data.locks, name)
	delete(s.data.shares, name)
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

// crash ends the server, and does something to its data.
func (s *server) crash(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.stop()
	do()
}

// forget is what a crash may do to data that should be kept.
func (s *server) forget() {
	switch s.flaw {
	case "holds are not kept":
		s.data.locks = map[string]entry{}
	case "tokens are counted in memory":
		s.data.last = map[string]uint64{}
	}
}

// wipe has the server forget everything. Until all that it may have granted has expired it grants nothing.
func (s *server) wipe() {
	s.data = noRows()
	if s.flaw != "grants though it has lost its data" {
		s.quiet = s.clock() + s.longest + s.late
	}
}

func (s *server) restart(t conformance.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	if err := s.start(); err != nil {
		t.Fatalf("the server does not start again: %v", err)
	}
}

// failOver is to a replica that knows all that the server does: only with a flaw is it told afterwards.
func (s *server) failOver(t conformance.TB) (fail func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := s.data.clone()
	return func() {
		s.crash(func() {
			switch {
			case strings.HasPrefix(s.flaw, "an asynchronous replica"):
				s.data = behind
			case s.flaw == "tokens are counted, and replicated later":
				s.data.last = behind.last
			}
		})
		s.restart(t)
	}
}

func (s *server) moveClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong += d
}
