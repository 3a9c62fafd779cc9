// Package thirdparty puts the locks of other libraries through the conformance suite of this module, and keeps what
// it found: [Libraries] lists where each of them does otherwise than the contract of [locker.Locker] says, why, and
// the name of a test that shows it with nothing but the library and a real server.
//
// The adapters are what a user would write in an afternoon: with the options that a library's documentation
// recommends, an object of the library for each Lock where one cannot be shared, and a mutex around what the adapter
// itself keeps. Where a library can be made to look better by its own means, it is. What a library does not have
// (TryLock, a deadline) is not invented, and the suite skips it; what the contract cannot do without (a fencing
// token, Extend, a TTL) is answered as well as the library allows.
//
// The suite requires that each deterministic deviation is one, and each library is the version in go.mod: when a
// release repairs something, its finding has to go.
package thirdparty
