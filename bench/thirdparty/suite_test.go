package thirdparty

import (
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/harness"
)

// run puts a library through the suite. newLocker makes Lockers that connect to what via returns for each server.
//
// The faults are those that say something of the library. A lock that is a key of one Redis is gone with the server's
// data, and expires by the server's clock, in every library.
func run[S interface {
	Stop()
	Continue()
	Kill()
	Wipe()
	Restart()
}](t *testing.T, h conformance.Harness,
	newLocker func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker, servers ...S,
) {
	t.Helper()
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return newLocker(t, name, ttl, straight)
	}
	harness.Servers(&h.Faults, servers, func() {
		for _, s := range servers {
			s.Restart()
		}
	})
	h.Faults.WipeServer = nil
	h.Faults.Through = newLocker
	l := libraryHere(t)
	h.Deviations = l.deviations(func(f Finding) []string { return f.Scenarios })
	h.Sometimes = l.deviations(func(f Finding) []string { return f.Sometimes })
	if raceDetector && l.Races != "" {
		t.Logf("no faults under the race detector: %s", l.Races)
		h.Faults = conformance.Faults{}
	}
	t.Parallel()
	conformance.Run(t, h)
}

// straight is the way to a server with nothing in between.
func straight(addr string) string { return addr }
