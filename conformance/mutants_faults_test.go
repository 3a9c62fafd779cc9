package conformance_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/stdio"
)

// idleHarness is that of correct locks, with a fault that does not do what it says.
func idleHarness(change func(*conformance.Faults, *server)) func() conformance.Harness {
	return func() conformance.Harness {
		s := newServer("")
		h := s.harness()
		change(&h.Faults, s)
		return h
	}
}

func nothing() {}

func idle(conformance.TB) func() { return nothing }

// The faults that do nothing, by what is wrong with them.
var idleFaults = map[string]func() conformance.Harness{
	"StopServer never stops": idleHarness(func(f *conformance.Faults, _ *server) { f.StopServer = idle }),
	"StopServer stops for a moment": idleHarness(func(f *conformance.Faults, s *server) {
		f.StopServer = func(conformance.TB) func() {
			resume := s.silence()
			time.AfterFunc(20*time.Millisecond, resume)
			return nothing
		}
	}),
	"KillServer kills nothing":  idleHarness(func(f *conformance.Faults, _ *server) { f.KillServer = idle }),
	"WipeServer kills nothing":  idleHarness(func(f *conformance.Faults, _ *server) { f.WipeServer = idle }),
	"WipeServer keeps the data": idleHarness(func(f *conformance.Faults, _ *server) { f.WipeServer = f.KillServer }),
	"Refuse refuses nothing":    idleHarness(func(f *conformance.Faults, _ *server) { f.Refuse = idle }),
	"FailOver ends nothing":     idleHarness(func(f *conformance.Faults, _ *server) { f.FailOver = idle }),
	"Revoke deletes another name": idleHarness(func(f *conformance.Faults, _ *server) {
		revoke := f.Revoke
		f.Revoke = func(t conformance.TB, name string) { revoke(t, "another:"+name) }
	}),
	"Through ignores via": idleHarness(func(f *conformance.Faults, s *server) {
		f.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			via(s.use(t))
			return dial(t, s.use(t), "", ttl, false)(name)
		}
	}),
	"Process starts another that holds": idleHarness(func(f *conformance.Faults, _ *server) {
		process := f.Process
		f.Process = func(t conformance.TB) *exec.Cmd {
			cmd := process(t)
			cmd.Env = append(cmd.Env, servedAside+"=1")
			return cmd
		}
	}),
}

// overThree is the harness of locks with two more servers, which only take connections. When an
// Extend does not reach one of the three, it gives the lock back, and tells nobody.
func overThree(tokens bool) conformance.Harness {
	s := newServer("")
	h := s.harness()
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		servers := []string{via(s.use(t))}
		for range 2 {
			listener, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatalf("%v", err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			servers = append(servers, via(listener.Addr().String()))
		}
		p := dial(t, servers[0], "", ttl, false)(name)
		if !tokens {
			p.token = func() uint64 { return 0 }
		}
		after(&p.extend, func(ctx context.Context, err error) error {
			for _, server := range servers {
				conn, refused := new(net.Dialer).DialContext(ctx, "tcp4", server)
				if refused != nil {
					s.revoke(name)
					continue
				}
				_ = conn.Close()
			}
			return err
		})
		return p
	}
	return h
}

// servedAside has a process of Lockers start another one, in whose place it is stopped and killed.
const servedAside = "LOCKER_TEST_ASIDE"

func standAside() {
	if os.Getenv(servedAside) == "" {
		return
	}
	cmd := exec.Command(os.Args[0])
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, servedAside) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	stdio.OwnGroup(cmd) // what is stopped and killed is the group
	_ = cmd.Run()
	os.Exit(0)
}

// idleMutants are killed by who asks whether the fault acts, and by who uses it.
func idleMutants() (all []mutant) {
	for _, m := range [][2]string{
		{"StopServer never stops", "the fault StopServer acts"},
		{"StopServer never stops", "Lock returns soon after ctx ends though the server is silent"},
		{"StopServer never stops", "Unlock returns by the deadline though the server is silent"},
		{"StopServer never stops", "a random history is that of one lock though servers are silent"},
		{"StopServer stops for a moment", "the fault StopServer acts"},
		{"KillServer kills nothing", "the fault KillServer acts"},
		{"KillServer kills nothing", "a hold lasts though the server restarts with its data"},
		{"KillServer kills nothing", "a random history is that of one lock though servers crash"},
		{"WipeServer kills nothing", "the fault WipeServer acts"},
		{"WipeServer keeps the data", "the fault WipeServer acts"},
		{"WipeServer keeps the data", "tokens rise though the server loses its data"},
		{"Refuse refuses nothing", "the fault Refuse acts"},
		{"Refuse refuses nothing", refusals},
		{"FailOver ends nothing", "the fault FailOver acts"},
		{"FailOver ends nothing", "a hold lasts though the server that lags most takes over"},
		{"Revoke deletes another name", "the fault Revoke acts"},
		{"Revoke deletes another name", "a hold that was ended behind its holder's back is lost"},
		{"Revoke deletes another name", "a waiter gets a lock that was taken from its holder"},
		{"Revoke deletes another name", "a release that is sent again never says nil if the hold had ended"},
		{"Revoke deletes another name", "tokens of a random history rise though holds are revoked"},
		{"Through ignores via", "the fault Through acts"},
		{"Through ignores via", "a holder that is cut off knows in time, and harms nobody when it is back"},
		{"Through ignores via", "a random history is that of one lock though clients are cut off"},
		{"Process starts another that holds", "the fault Process acts"},
		{"Process starts another that holds", "a process that was stopped past its TTL knows when it wakes"},
		{"Process starts another that holds", "a random history is that of one lock though processes are stopped"},
	} {
		all = append(all, mutant{m[0], m[1], idleFaults[m[0]]})
	}
	return all
}

// TestClockThatIsSetBackLate: no hold is left then whose end could be late.
func TestClockThatIsSetBackLate(t *testing.T) {
	t.Cleanup(conformance.Trials(2))
	h := served("expires by the wall clock")
	move := h.Faults.MoveClock
	h.Faults.MoveClock = func(t conformance.TB, d time.Duration) func() {
		time.Sleep(2 * h.TTL)
		return move(t, d)
	}
	assert.ErrorContains(t, try(find(t, "a hold expires though the server's clock jumps back"), h), "was over before the clock was set back")
}

// TestIdleFaults_areNoDeviation of the backend.
func TestIdleFaults_areNoDeviation(t *testing.T) {
	h := idleFaults["WipeServer keeps the data"]()
	s := find(t, "a hold lasts though the server loses its data")
	h.Deviations = map[string]string{s.Name: "it forgets"}
	r := conformance.Examine(t, s, h)
	assert.Equal(t, conformance.Broken, r.Outcome)
	assert.Contains(t, r.Seen, "your fault did nothing")
}

// TestFaults_thatActLateAreWaitedFor: SIGSTOP, a signal to a server, or an operator's command may
// need a moment.
func TestFaults_thatActLateAreWaitedFor(t *testing.T) {
	const late = 50 * time.Millisecond
	harness := idleHarness(func(f *conformance.Faults, s *server) {
		f.StopServer = func(conformance.TB) func() {
			stopped := make(chan func(), 1)
			time.AfterFunc(late, func() { stopped <- s.silence() })
			return func() { (<-stopped)() }
		}
		former := make(chan struct{})
		close(former)
		// Holds are revoked one after another, in the order of the calls.
		f.Revoke = func(_ conformance.TB, name string) {
			before, done := former, make(chan struct{})
			former = done
			time.AfterFunc(late, func() {
				<-before
				s.revoke(name)
				close(done)
			})
		}
	})
	for _, name := range []string{
		"the fault StopServer acts", "the fault Revoke acts",
		"Lock returns soon after ctx ends though the server is silent",
		"a Lock that ended while the server was silent leaves nothing behind",
		"Lost fires in time though the server is silent",
		"Unlock returns by the deadline though the server is silent",
		"a renewed hold that expired at a silent server stays lost",
		"a hold that was ended behind its holder's back is lost",
		"a waiter gets a lock that was taken from its holder",
		"a release that is sent again never says nil if the hold had ended",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, try(find(t, name), harness()))
		})
	}
}
