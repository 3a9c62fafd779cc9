package conformance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// Put your own Locker through the suite: in a test file of yours, call Run. Here the Locker is one
// of mem://, each with a client of its own.
func ExampleRun() {
	// func TestConformance(t *testing.T) {
	test := func(t *testing.T) {
		conformance.Run(t, conformance.Harness{
			TTL: 300 * time.Millisecond,
			New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
				client, err := locker.Open(t.Context(), "mem://example", locker.WithTTL(ttl), locker.WithoutRenewal())
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				t.Cleanup(func() { _ = client.Close() })
				return client.Mutex(name)
			},
		})
	}
	_ = test
}

// What is promised can be listed, for people who choose a lock.
func ExampleScenarios() {
	first := conformance.Scenarios()[0]
	fmt.Println(first.Name)
	fmt.Println(first.Promise)
	// Output:
	// a held lock is not granted to another process
	// A lock is held by at most one holder, and Unlock lets in the next.
}
