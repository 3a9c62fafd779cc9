package kubernetes

import (
	"testing"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
)

// The suite with the faults of a network, on the fake: see there what it is worth.
func TestFake_conformance(t *testing.T) {
	f := newFake(t)
	h := harness.ForURL(2*time.Second, f.url(t), []string{f.Listener.Addr().String()})
	h.RW = nil // there are no shares
	conformance.Run(t, h)
}
