// Package conformance is the contract of [locker.Locker] as a suite of scenarios. Anyone may put
// any Locker through it, an adapter of this module or a third-party lock:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			TTL: time.Second,
//			New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
//				conn, err := mylock.Dial(t.Context(), addr)
//				if err != nil {
//					t.Fatalf("dial: %v", err)
//				}
//				t.Cleanup(func() { conn.Close() })
//				return mylock.New(conn, name, ttl)
//			},
//		})
//	}
//
// Each scenario states one promise of the contract, and a failure says which promise was broken and
// what was seen. A scenario that needs what the Locker or the Harness lacks (TryLock, Lost,
// Deadline, a way to silence the server) is printed as skipped. At the end Run logs how many
// promises were kept, with a list of those that were broken in at least one trial, and of the known
// deviations; go test -v prints it.
//
// A scenario blames a Locker only for what is certain, or for what it saw in every one of several
// trials: it allows for slow calls, unfair queues, a TTL that is up to half a second late, tokens
// with gaps, and a hold that is now and then reported lost before its time. Two holders at once
// break the promise, even in one trial. A Locker may report a loss too early. In a scenario without
// faults, this is excused if no other hold begins before the lost hold should have ended. If
// another hold begins before that time, the promise is broken, even if the Locker has reported the
// loss before.
//
// A trial is in doubt if it saw something that slowness or an early loss can explain. Then the
// scenario is tried up to five times. The promise is kept if at least one of these trials sees no
// breach. The result says in how many trials it was kept: "kept, in 3 of 5 trials". The flag
// -conformance.doubts=N tolerates N trials in doubt and no more. If you know that your lock is
// never slow and loses no hold before its time, set it to 0. By default any number of trials may be
// in doubt, but not all of them. A doubt is not counted if this machine paused or was overloaded in
// that trial. If every trial is in doubt, all doubts are counted. If the machine paused or was
// overloaded in every trial, more than five trials are made, for about half a minute.
//
// The suite holds locks, and waits for TTLs, in real time. If the backend allows a TTL of 300 ms,
// the suite takes ten seconds without faults, and a minute and a half with all faults. With a
// longer TTL it takes longer in proportion. Scenarios that wait run side by side.
//
// Programs that are not tests use [Examine]. It runs one scenario, with a [TB] that the caller
// passes. The command locker check does so for a deployment.
//
// # Locks in other languages
//
// Package [program] makes a Harness for a lock that is a program of its own, in any language. The
// program reads requests and writes answers as lines of JSON: docs/evidence/judge-any-language.md
// is the specification. A Go program becomes such a program when it calls program.ServeLocks. A Go
// test that needs its Lockers in another process calls program.Serve.
//
// # Faults
//
// [Faults] lists what the suite may do to the backend. Each is optional: servers go silent, crash,
// lose their data or fail over, or their clock jumps; connections are cut, are slow or lose
// replies; holders run in processes of their own, which are stopped and killed. A scenario without
// the fault that it needs is skipped, and says so.
//
// # Histories
//
// In some scenarios clients make random calls while faults come and go. The answers must be the
// history of one lock. The checker, porcupine, looks for an order of all calls, in which each takes
// effect at one moment between its start and its return. In this order a hold begins only when
// there is none, its token is larger than all before, and calls such as Extend confirm it only
// while it lasts. If the outcome of a call is unknown, the checker accepts any outcome. The flags
// -conformance.seed, -conformance.for and -conformance.faults set the random choices, the duration
// and the faults. A history that fails is saved in -conformance.dir, as a page and as JSON.
//
// # Results
//
// With the flag -conformance.results=FILE each [Result] is appended to a file, as JSON. With
// -conformance.record=DIR each scenario writes a record of its last trial into DIR.
// docs/evidence/conformance.md has more; docs/matrix.html has all scenarios.
//
// [program]: https://pkg.go.dev/github.com/go-locker/locker/conformance/program
package conformance
