package conformance

import (
	"os/exec"
	"time"

	"github.com/go-locker/locker"
)

// Faults are what the suite may do to the backend, each optional. Scenarios that need a missing one
// are skipped, and say so. A fault of the servers, except FailOver, returns a function that undoes
// it. The suite calls it once, also if the scenario has failed, and at the latest when the Cleanup
// functions of t run. Faults are called from goroutines other than the test's.
//
// The suite checks that each fault acts, in a scenario of its own and where it is used. A fault may
// begin to act up to a second after it has returned. In a random history the limit is a tenth of a
// second. If a fault does nothing, the scenario fails with a message about the fault, not about the
// Locker. MoveClock is not checked, because some locks use no clock. ThroughClient is checked only
// where it is used, and FailOver only with Through, which tells the suite where the servers are.
type Faults struct {
	// StopServer stops the backend (SIGSTOP): it keeps and accepts connections, but answers
	// nothing until resume is called. Its clock goes on.
	StopServer func(t TB) (resume func())

	// KillServer kills all servers of the backend (SIGKILL). restart starts them again, with the
	// data that they have kept, and returns when they answer.
	KillServer func(t TB) (restart func())

	// WipeServer is KillServer, but the data are lost.
	WipeServer func(t TB) (restart func())

	// Refuse has the servers answer each request for a lock with an error, as servers do that have
	// no memory or disk left, or are read-only. They may still carry out an Extend or an Unlock.
	Refuse func(t TB) (accept func())

	// FailOver prepares a failover to the server that lags most, which has received the fewest
	// writes. After FailOver has returned, this server receives only synchronous writes: those that
	// the backend replicates before it answers the client. fail then crashes the present primary,
	// and the backend's own failover lets the other server take its place. fail returns when the
	// backend answers again. The Cleanup functions of t mend what is left.
	//
	// For a quorum of independent servers, fail crashes one server that has granted the lock. This
	// server comes back without its data.
	FailOver func(t TB) (fail func())

	// MoveClock moves the wall clock of the backend's servers by d, which may be negative, and no
	// other clock. back undoes the move.
	MoveClock func(t TB, d time.Duration) (back func())

	// Revoke ends the present hold of name, without the help of its holder, as an operator or the
	// backend can: it deletes the key, revokes the lease or expires the session.
	Revoke func(t TB, name string)

	// Through is like Harness.New, but the Locker connects to via(address) instead of each
	// server's address, "host:port". There the suite has a proxy that cuts, delays and loses
	// traffic. If it returns an RWLocker, scenarios of shares use it, too.
	Through func(t TB, name string, ttl time.Duration, via func(address string) string) locker.Locker

	// ThroughClient is like Harness.Client, and connects as Through does.
	ThroughClient func(t TB, ttl time.Duration, renew bool, via func(address string) string) func(name string) locker.Locker

	// Process returns the command of a program that calls program.Serve with a function like New,
	// or that speaks the protocol of docs/evidence/judge-any-language.md in any language. A test
	// binary may be that program. The suite adds to its Env, starts it, stops it (SIGSTOP),
	// continues and kills it. Without Process no holder is really paused. If it serves RWLockers,
	// scenarios of shares use it, too.
	Process func(t TB) *exec.Cmd
}
