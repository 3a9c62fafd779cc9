// Package simulation plays the core over simulated servers and networks, in virtual time. A seed
// decides all that happens.
package simulation

import (
	"flag"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/clock"
)

// dice returns random numbers that depend only on the seed, the virtual time and the arguments. So
// the order of goroutines that run at the same instant changes none of them.
type dice struct {
	seed  uint64
	began time.Time
}

func (d dice) roll(what string, id uint64) uint64 {
	h := d.seed*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	mix := func(v uint64) {
		hi, lo := bits.Mul64(h^v, 0xd6e8feb86659fd93)
		h = hi ^ lo ^ bits.RotateLeft64(h, 23)
	}
	mix(uint64(time.Since(d.began)))
	for _, c := range []byte(what) {
		mix(uint64(c) + 1)
	}
	mix(id + 0x1000)
	mix(d.seed ^ 0xa0761d6478bd642f)
	return h
}

// below is a number below n.
func (d dice) below(n int, what string, id uint64) int {
	return int(d.roll(what, id) >> 1 % uint64(n))
}

// upTo is a time below n, by the nanosecond, so that hardly two things happen at one instant.
func (d dice) upTo(n time.Duration, what string, id uint64) time.Duration {
	return time.Duration(d.below(max(int(n), 1), what, id))
}

// chance is true so often.
func (d dice) chance(share float64, what string, id uint64) bool {
	return float64(d.roll(what, id)>>11)/(1<<53) < share
}

var (
	seeds = flag.Int("seeds", 1000, "how many")
	first = flag.Uint64("first", 1, "the first")
	trace = flag.Bool("trace", false, "print what happens")
)

// play plays one seed.
func play(t *testing.T, seed uint64) (w *world) {
	t.Helper()
	defer func() { clock.Random = rand.N[time.Duration] }()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed)
		w.run()
	})
	return w
}

func TestSeeds(t *testing.T) {
	began, grants, lost := time.Now(), 0, 0
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		w := play(t, seed)
		grants, lost = grants+w.grants, lost+w.lost
		if *trace {
			t.Log(strings.Join(w.trace, "\n"))
		}
		if len(w.broken) > 0 {
			t.Fatalf("seed %d (%v):\n\t%s\nagain: go test ./internal/test/simulation -run TestSeeds$ -v -args -seeds=1 -first=%d -trace",
				seed, w, strings.Join(w.broken, "\n\t"), seed)
		}
	}
	t.Logf("%d seeds in %v: %d holds, %d of them lost", *seeds, time.Since(began).Round(time.Millisecond), grants, lost)
}

// A seed is the same story each time.
func TestSeeds_areTheSameEachTime(t *testing.T) {
	for seed := range uint64(50) {
		a, b := play(t, seed), play(t, seed)
		require.Equal(t, a.events, b.events, "seed %d", seed)
	}
}
