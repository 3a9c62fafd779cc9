// Package conformance is the contract of [locker.Locker] as a suite of scenarios. Anyone may put any
// Locker through it, an adapter of this module or a lock of another make:
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
// Each scenario states one promise of the contract, and a failure says which promise was broken and what
// was seen. What the Locker or the Harness lacks (TryLock, Lost, Deadline, a way to silence the
// server) is printed as skipped.
//
// A scenario blames a Locker only for what is certain, or for what it saw in every one of several
// trials: it allows for slow calls, unfair queues, a TTL that is up to half a second late, tokens with
// gaps, and a hold that is now and then reported lost before its time. Two holders at once count if
// both were told that they held to the end.
//
// Locks are held for real time: the suite takes about half a minute at a backend whose TTL may be
// 300 ms, and longer in proportion at others.
package conformance
