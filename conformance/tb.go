package conformance

import "context"

// TB has the methods of a test that scenarios need. *testing.T implements it, and a command-line
// program can implement it, too. Fatalf does not return: it ends the calling goroutine, as that of
// package testing does.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}
