// Package simulation plays the core over simulated servers and networks, in virtual time. A seed
// decides all that happens.
package simulation

import (
	"encoding/json"
	"flag"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/testwait"
)

// bug is one that the core had, or would have if a line of it were not there.
type bug struct {
	name     string
	fix      string // the commit that fixed it; empty: nobody made the mistake yet
	file     string
	old, new string // a line of the file, and the line with the bug
	first    uint64 // the first seed that is tried; 0: seed 1
}

// bugs are those that TestBugs_areFound puts back.
var bugs = []bug{
	{
		"a renewal that is answered while Close waits for a function releases the hold", "bf4ab22", "hold.go",
		"if errors.Is(err, ErrLost) && !h.endedByClose(now) {", "if errors.Is(err, ErrLost) {", 0,
	},
	{
		"a release gives up shortly before the end of a session that goes on after all", "b1cc234", "release.go",
		"		pause = min(pause, left)\n", "		if pause >= left {\n			return false\n		}\n", 0,
	},
	{
		"Close does not wait for a function that is still returning", "14daa70", "release.go",
		"switch works := h.works(); {", "switch works := false; {", 0,
	},
	{
		"a hold whose Extend had an unknown outcome is not released when it expires", "9256fd0", "release.go",
		"if h.extendInDoubt.Load() || h.goesOn(c.open)", "if h.goesOn(c.open)", 0,
	},
	{
		"a hold whose Unlock was not answered by the deadline is not released later, though its session goes on", "02e9d8e", "release.go",
		"clock.Now().Before(r.deadline) || r.hold.goesOn(life)", "clock.Now().Before(r.deadline)", 0,
	},
	{
		"a hold is not released if its session is heard of again just before it would end", "526b29f8", "release.go",
		"		_ = clock.Sleep(life, left)\n		left = h.lease.Validity()\n", "		left = 0\n", 184000,
	},
	{
		"a hold that expires on a session that goes on is not released", "", "hold.go",
		"	if why == CauseExpired {\n		h.cleanUpAfter(clock.Now())\n	}\n", "", 0,
	},
	{
		"a Lock that fails does not hand over its turn", "17e782f", "mutex.go",
		"			m.passTurn()\n		}\n	}()", "		}\n	}()", 0,
	},
	{
		"a Lock fails because the connection of its first request was broken", "e04c1eb", "acquire.go",
		"firstTries    = 3", "firstTries    = 1", 0,
	},
	{
		"a renewal that is answered late does not count", "21ce82f", "renew.go",
		"newRequest(context.Background(), c.background, ttl*(renewalsPerTTL-1)/renewalsPerTTL)", "newRequest(context.Background(), c.background, ttl/20)", 0,
	},
	{
		"an Unlock whose context has ended releases only after a pause", "7c3518a", "release.go",
		"if r.tries > 0 && !r.rest(life, &last) {", "if !r.rest(life, &last) {", 0,
	},
	{
		"a Lock gives up after a grant that came too late", "004c1a6", "acquire.go",
		"case late:\n			_ = c.abandon(h, err)\n			h, claim = c.newClaim()", "case late:\n			return nil, c.abandon(h, err)", 0,
	},
	{
		"a grant that came too late is taken", "", "hold.go",
		"if left < h.ttl/2 {", "if left < 0 {", 0,
	},
	{
		"deadlines have no allowance for clocks that drift", "", "acquire.go",
		"return left - drift(ttl), capped", "return left, capped", 0,
	},
	{
		"a loss is reported late", "592b069", "hold.go",
		"	next := h.deadline\n", "	next := h.deadline.Add(h.ttl / 16)\n", 0,
	},
	{
		"the lease or place that a failed attempt left behind is not released", "d8c9030", "acquire.go",
		"	c.mutex.client.spawn(h.cleanUp)\n	return err", "	return err", 0,
	},
	{
		"a wait that ends keeps its place in the queue", "", "acquire.go",
		"		h.cleanUp()\n		close(left)", "		close(left)", 0,
	},
	{
		"a release is tried only once", "", "release.go",
		"		if r.try(patience) {\n			return true\n		}", "		return r.try(patience)", 0,
	},
}

// seedsForABug are as many as it takes to find the rarest.
const seedsForABug = 2000

var failedSeed = regexp.MustCompile(`(?m)seed (\d+) \(`)

// TestBugs_areFound puts each bug back into the core, and requires that a seed finds it.
func TestBugs_areFound(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, b := range bugs {
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			file, dir := filepath.Join(root, b.file), t.TempDir()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), b.old), "the line in %s is another now", b.file)
			testwait.OnlyNightly(t, "it compiles the core once for each bug")
			changed := filepath.Join(dir, b.file)
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), b.old, b.new, 1)), 0o600))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
			program := filepath.Join(dir, "simulation.test")
			out, err := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-c", "-o", program, ".").CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = exec.Command(program, "-test.run=^TestSeeds$", "-test.timeout=20m", "-seeds", strconv.Itoa(seedsForABug), "-first", strconv.FormatUint(max(b.first, 1), 10)).CombinedOutput()
			require.Error(t, err, "no seed finds it")
			if found := failedSeed.FindSubmatchIndex(out); found != nil {
				line, _, _ := strings.Cut(string(out[found[0]:]), "\n")
				t.Logf("found by %s", line)
				return
			}
			assert.Regexp(t, "panic:|deadlock|test timed out", string(out))
		})
	}
}

// dice are random numbers that depend on the seed, on the virtual time and on what is asked for,
// and on nothing else. Goroutines that run at the same instant, in whatever order, do not disturb
// each other's.
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
