package kubernetes

import (
	"os"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
)

// The suite on the fake, with the faults of a network and of processes in make nightly: see there
// what it is worth.
func TestFake_conformance(t *testing.T) {
	f := newFake(t)
	h := harness.ForURL(2*time.Second, f.url(t), []string{f.Listener.Addr().String()})
	h.RW = nil // there are no shares
	if os.Getenv("LOCKER_NIGHTLY") == "" {
		h.TTL, h.Faults = time.Second, conformance.Faults{}
	}
	conformance.Run(t, h)
}
