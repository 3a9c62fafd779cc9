package simulation

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/clock"
)

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
