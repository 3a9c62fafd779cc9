package conformance

import (
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

// Faults are what the suite may do to the backend, each optional. Scenarios that need a missing one are
// skipped, and say so. What a fault returns undoes it; the suite calls that once, also when a
// scenario has failed, and at the latest when the Cleanup functions of t run. All of it may be
// called from goroutines other than the test's.
//
// The suite asks whether a fault acts: in a scenario of its own, and again where it is used. It waits for one that acts up to a second
// after it has returned, in a random history a tenth. A scenario whose fault did nothing says so, and blames no Locker. MoveClock alone is not asked: a lock that heeds
// no clock shows nothing of it. FailOver is asked only where there is Through, which tells where the servers are.
type Faults struct {
	// StopServer makes the backend silent: it accepts connections, keeps those that it has, and
	// answers nothing until resume is called (SIGSTOP). Its clock goes on.
	StopServer func(t TB) (resume func())

	// KillServer ends the backend as a crash does (SIGKILL): all its servers. restart starts them
	// again, with the data that they have kept, and returns when they answer.
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

	// Revoke ends the hold that name has now behind its holder's back, as an operator or the
	// backend itself can: it deletes the key, revokes the lease, expires the session.
	Revoke func(t TB, name string)

	// Through is Harness.New, but for every address of a server, "host:port", the Locker connects
	// to what via returns for it. The suite has a proxy of its own there that cuts, delays and
	// loses what passes.
	Through func(t TB, name string, ttl time.Duration, via func(address string) string) locker.Locker

	// Process returns the command of a program that calls Serve with a function like New: a
	// process of its own, that the suite stops (SIGSTOP), continues and kills. A test binary may
	// be that program. The suite starts it, and adds to its Env. Without it a Locker that holds
	// is never really paused.
	Process func(t TB) *exec.Cmd
}

// need is something that a scenario cannot do without.
type need struct {
	name     string
	disturbs bool // whatever uses the backend at the same time
	met      func(Harness) bool
}

var (
	stops     = need{"Faults.StopServer", true, func(h Harness) bool { return h.Faults.StopServer != nil }}
	kills     = need{"Faults.KillServer", true, func(h Harness) bool { return h.Faults.KillServer != nil }}
	wipes     = need{"Faults.WipeServer", true, func(h Harness) bool { return h.Faults.WipeServer != nil }}
	failsOver = need{"Faults.FailOver", true, func(h Harness) bool { return h.Faults.FailOver != nil }}
	clocks    = need{"Faults.MoveClock", true, func(h Harness) bool { return h.Faults.MoveClock != nil }}
	revokes   = need{"Faults.Revoke", false, func(h Harness) bool { return h.Faults.Revoke != nil }}
	links     = need{"Faults.Through", false, func(h Harness) bool { return h.Faults.Through != nil }}
	processes = need{"Faults.Process", false, func(h Harness) bool { return h.Faults.Process != nil }}
	clients   = need{"Client", false, func(h Harness) bool { return h.Client != nil }}
)

// unmet is a skip that names what of needs h lacks, or nil.
func unmet(needs []need, h Harness) error {
	i := slices.IndexFunc(needs, func(n need) bool { return !n.met(h) })
	if i < 0 {
		return nil
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

// moveClock is MoveClock, until the trial ends.
func (e *env) moveClock(d time.Duration) {
	e.harm(func(t TB) func() { return e.h.Faults.MoveClock(t, d) })
}
