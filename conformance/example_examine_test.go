package conformance_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// outside is a TB of a program that is not a test.
type outside struct {
	ctx     context.Context
	cleanup []func()
}

func (*outside) Helper()                    {}
func (*outside) Logf(string, ...any)        {}
func (p *outside) Cleanup(f func())         { p.cleanup = append(p.cleanup, f) }
func (p *outside) Context() context.Context { return p.ctx }
func (*outside) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	runtime.Goexit()
}

// A program that is no test examines a lock too: in a goroutine, which a Fatalf may end, and with a
// clean-up after it.
func ExampleExamine() {
	harness := conformance.Harness{
		TTL: 300 * time.Millisecond,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			client, err := locker.Open(t.Context(), "mem://example-examine", locker.WithTTL(ttl), locker.WithoutRenewal())
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			t.Cleanup(func() { _ = client.Close() })
			return client.Mutex(name)
		},
	}
	p := &outside{ctx: context.Background()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		result := conformance.Examine(p, conformance.Scenarios()[0], harness)
		fmt.Println(result.Scenario+":", result.Outcome)
	}()
	<-done
	for _, f := range slices.Backward(p.cleanup) {
		f()
	}
	// Output:
	// a held lock is not granted to another process: kept
}
