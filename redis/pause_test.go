//go:build unix

package redis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The process of a holder is stopped for two fifths of its TTL, at some moment between two renewals: that costs nothing.
func TestPause_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	testwait.OnlyNightly(t, "the core shows it in virtual time")
	t.Parallel()
	const ttl = harness.SilenceTTL
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	token := p.Says("held")[0]
	for range 2 {
		time.Sleep(rand.N(ttl / 3))
		p.Stop()
		time.Sleep(2 * ttl / 5)
		p.Continue()
	}
	p.Tell("well?")
	assert.Equal(t, []string{"false", token, "false"}, p.Says("believes"), "lost, token, ErrLost from Unlock")
}
