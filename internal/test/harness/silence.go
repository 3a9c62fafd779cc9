package harness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// SilenceTTL is the TTL of a hold that is put through [OutlivesSilence]: a sixth of it is more than a busy machine takes.
const SilenceTTL = 10 * time.Second

// OutlivesSilence has m, a Mutex of SilenceTTL that is renewed, hold while its servers are silent for two fifths of
// that, again and again, each time from some moment between two renewals. That must not cost the hold: it is what
// docs/safety.md has people size TTLs by.
func OutlivesSilence(t *testing.T, m *locker.Mutex, silence, resume func()) {
	t.Helper()
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	token := m.FencingToken()
	times := 1
	if testwait.Thorough() {
		times = 3
	}
	for range times {
		time.Sleep(rand.N(SilenceTTL / 3))
		silence()
		time.Sleep(2 * SilenceTTL / 5)
		resume()
		before := m.Deadline()
		testwait.Patience(2*SilenceTTL).Until(t, "it is renewed, or lost", func() bool {
			return m.FencingToken() == 0 || m.Deadline().After(before)
		})
		if now := m.FencingToken(); now != token {
			t.Fatalf("the token was %d, and after the silence it is %d", token, now)
		}
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// OutlivesSlowness has m, a Mutex of SilenceTTL that is renewed over network, hold though a round
// trip comes to take an eighth of that, and connections have to be made anew: docs/safety.md has
// what a link may take.
func OutlivesSlowness(t *testing.T, m *locker.Mutex, network *testserver.Proxy) {
	t.Helper()
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, first := m.FencingToken(), m.Deadline()
	network.Delay(SilenceTTL / 16)
	defer network.Delay(0)
	network.ResetConns()
	testwait.Patience(3*SilenceTTL).Until(t, "it is renewed again and again, or lost", func() bool {
		return m.FencingToken() == 0 || m.Deadline().After(first.Add(2*SilenceTTL))
	})
	if now := m.FencingToken(); now != token {
		t.Fatalf("the token was %d, and now it is %d", token, now)
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
