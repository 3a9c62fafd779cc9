package conformance

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/history"
)

// Faults are what the suite may do to the backend, each optional. Scenarios that need a missing one are
// skipped, and say so. A fault returns a function that undoes it. The suite calls that once, also if the
// scenario has failed, and at the latest when the Cleanup functions of t run. Faults are called from
// goroutines other than the test's.
//
// The suite checks that each fault acts, in a scenario of its own and where it is used. A fault may begin to act up to a second
// after it has returned, in a random history a tenth of a second. If a fault does nothing, the scenario fails with a message
// about the fault, not about the Locker. MoveClock is not checked, because a lock may use no clock. FailOver is checked
// only with Through, which tells the suite where the servers are.
type Faults struct {
	// StopServer stops the backend (SIGSTOP): it keeps and accepts connections, but answers
	// nothing until resume is called. Its clock goes on.
	StopServer func(t TB) (resume func())

	// KillServer kills all servers of the backend (SIGKILL). restart starts them again, with the
	// data that they have kept, and returns when they answer.
	KillServer func(t TB) (restart func())

	// WipeServer is KillServer, but the data are lost.
	WipeServer func(t TB) (restart func())

	// FailOver prepares a failover to the server that knows least: one that, from now on, learns
	// only what the backend makes sure that it knows before it answers. fail then ends, by a
	// crash, the server that decides now, has that other one take its place as the backend's own
	// means would, and returns when the backend answers again. The Cleanup functions of t mend
	// what is left.
	//
	// For a quorum of servers that know nothing of each other it is the crash of one that has
	// granted the lock, which comes back without its data.
	FailOver func(t TB) (fail func())

	// MoveClock moves the wall clock of the backend's servers by d, which may be negative, and
	// nobody else's. back takes the move back.
	MoveClock func(t TB, d time.Duration) (back func())

	// Revoke ends the present hold of name, without its holder, as an operator or the backend
	// can: it deletes the key, revokes the lease or expires the session.
	Revoke func(t TB, name string)

	// Through is like Harness.New, but the Locker connects to via(address) instead of each
	// server's address, "host:port". There the suite has a proxy that cuts, delays and loses
	// traffic. If it returns an RWLocker, scenarios of shares use it, too.
	Through func(t TB, name string, ttl time.Duration, via func(address string) string) locker.Locker

	// ThroughRenewing is Through with automatic renewal.
	ThroughRenewing func(t TB, name string, ttl time.Duration, via func(address string) string) locker.Locker

	// Process returns the command of a program that calls Serve with a function like New, or that
	// speaks the protocol of docs/judge-any-language.md in any language. A test binary may be that
	// program. The suite adds to its Env, starts it, stops it (SIGSTOP), continues and kills it.
	// Without Process no holder is really paused. If it serves RWLockers, scenarios of shares use
	// it, too.
	Process func(t TB) *exec.Cmd
}

// need is something that a scenario cannot do without.
type need struct {
	name     string
	disturbs bool // whatever uses the backend at the same time
	met      func(Harness) bool
	why      string // it is not met; empty: the Harness has no such field
}

var (
	stops     = need{"Faults.StopServer", true, func(h Harness) bool { return h.Faults.StopServer != nil }, ""}
	kills     = need{"Faults.KillServer", true, func(h Harness) bool { return h.Faults.KillServer != nil }, ""}
	wipes     = need{"Faults.WipeServer", true, func(h Harness) bool { return h.Faults.WipeServer != nil }, ""}
	failsOver = need{"Faults.FailOver", true, func(h Harness) bool { return h.Faults.FailOver != nil }, ""}
	clocks    = need{"Faults.MoveClock", true, func(h Harness) bool { return h.Faults.MoveClock != nil }, ""}
	revokes   = need{"Faults.Revoke", false, func(h Harness) bool { return h.Faults.Revoke != nil }, ""}
	links     = need{"Faults.Through", false, func(h Harness) bool { return h.Faults.Through != nil }, ""}
	renewing  = need{"Faults.ThroughRenewing", false, func(h Harness) bool { return h.Faults.ThroughRenewing != nil }, ""}
	processes = need{"Faults.Process", false, func(h Harness) bool { return h.Faults.Process != nil }, ""}
	clients   = need{"Client", false, func(h Harness) bool { return h.Client != nil }, ""}

	readsWrites = need{"RW", false, func(h Harness) bool { return h.RW != nil }, ""}
)

// fault reports whether it is one of Faults.
func (n need) fault() bool { return strings.Contains(n.name, "Faults.") }

// field is its name among Faults.
func (n need) field() string { return strings.TrimPrefix(n.name, "Faults.") }

// unmet is a skip that names what of needs h lacks, or nil.
func unmet(needs []need, h Harness) error {
	i := slices.IndexFunc(needs, func(n need) bool { return !n.met(h) })
	if i < 0 {
		return nil
	}
	if needs[i].why != "" {
		return Skip(needs[i].why)
	}
	return Skip("the Harness has no " + needs[i].name)
}

// harm is a fault that lasts until undo is called, or the trial ends.
func (e *env) harm(fault func(TB) (undo func())) (undo func()) {
	mend := fault(e)
	var once sync.Once // and no OnceFunc: that panics where mend calls Fatalf
	undo = func() { once.Do(mend) }
	e.Cleanup(undo)
	return undo
}

// moveClock is MoveClock, until back is called, or the trial ends.
func (e *env) moveClock(d time.Duration) (back func()) {
	from := e.since()
	back = e.harm(func(t TB) func() { return e.h.Faults.MoveClock(t, d) })
	e.befell(history.Fault{Kind: clocks.field(), What: fmt.Sprintf("clock moved by %v", d), From: from})
	return back
}
