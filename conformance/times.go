package conformance

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/internal/history"
)

// settle gives a fast Lock that was started the time to ask, be refused and wait. See env.settle.
const settle = 100 * time.Millisecond

// pause is how late this machine may run a timer in most of a few trials.
const pause = 200 * time.Millisecond

// coarse is how much later than after its TTL a hold may expire.
const coarse = history.Coarse

// drift is what the contract takes off a TTL for clocks that run at different speeds.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// slack is how late after ttl a waiter may get the lock of a holder that has crashed.
func slack(ttl time.Duration) time.Duration { return max(800*time.Millisecond, ttl/2) }

// halfMinute is a little longer than the time that people think long enough for anything.
const halfMinute = 32 * time.Second

// someSeconds is how long a random history takes unless a flag says otherwise, and the backend is
// slow.
var someSeconds = 3 * time.Second

// sleepUntil is a sleep that ctx ends.
func sleepUntil(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// upTo is a random duration.
func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}
