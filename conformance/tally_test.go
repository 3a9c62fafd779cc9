package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripted is a trial that ends as it was told.
type scripted struct {
	err    error
	paused bool
}

var (
	errSeen            = errors.New("two at once")
	clean, cleanPaused = scripted{}, scripted{paused: true}
	doubted            = scripted{err: &doubtful{errSeen}}
	doubtedPaused      = scripted{err: &doubtful{errSeen}, paused: true}
)

func TestTally(t *testing.T) {
	const all = 4 // but one of five
	sure, surePaused := scripted{err: errSeen}, scripted{err: errSeen, paused: true}
	for _, c := range []struct {
		what    string
		allowed int
		trials  []scripted
		says    string // of a promise that was not kept
	}{
		{"nothing seen", 0, []scripted{clean}, ""},
		{"nothing seen, on a machine that pauses", 0, []scripted{cleanPaused, cleanPaused, cleanPaused}, ""},
		{"once is not each time", all, []scripted{doubted, doubted, clean, clean, clean}, ""},
		{"all but once", all, []scripted{doubted, doubted, doubted, doubted, clean}, ""},
		{"each time", all, []scripted{doubted, doubted, doubted, doubted, doubted}, "in each of 5 trials"},
		{"each time, on a machine that pauses at first", 0, []scripted{doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubted}, "in each of 7"},
		{"not each time, on a machine that pauses at first", 0, []scripted{doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, doubtedPaused, clean}, ""},
		{"certain", all, []scripted{doubted, sure}, "two at once"},
		{"certain, after a trial that kept it", all, []scripted{doubted, clean, sure}, "two at once"},
		{"certain, on a machine that pauses", all, []scripted{surePaused}, "two at once"},
		{"seen whenever the machine does not pause", all, []scripted{cleanPaused, doubted, doubted, cleanPaused, cleanPaused}, "in all of 5 trials but 3"},
		{"seen once when it does not pause", all, []scripted{cleanPaused, doubted, doubtedPaused, doubtedPaused, doubtedPaused}, ""},

		{"one, and none is tolerated", 0, []scripted{doubted, clean, clean, clean, clean}, "in 1 of 5 trials"},
		{"the last of some that are hidden", 0, []scripted{cleanPaused, doubted, clean, clean, clean}, "in 1 of 5 trials"},
		{"one, when the machine paused", 0, []scripted{doubtedPaused, clean, clean, clean, clean}, ""},
		{"one of two when it did not pause", 0, []scripted{doubtedPaused, doubted, clean, clean, clean}, "in 2 of 5 trials"},
		{"as many as are tolerated", 2, []scripted{doubted, doubted, clean, clean, clean}, ""},
		{"one more than are tolerated", 2, []scripted{doubted, clean, doubted, clean, doubted}, "in 3 of 5 trials"},
	} {
		t.Run(c.what, func(t *testing.T) {
			defer Doubts(c.allowed)()
			var n tally
			var err error
			for i, trial := range c.trials {
				assert.False(t, i > 0 && n.enough(), "after %d trials another is one too many", i)
				if err = trial.err; n.add(trial.err, trial.paused) {
					break
				}
				err = n.verdict()
			}
			if n.trials < len(c.trials) || c.says != "two at once" && !n.enough() {
				t.Errorf("after %d trials of %d: %+v", n.trials, len(c.trials), n)
			}
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, errSeen)
		})
	}
}

// A soak is not repeated because the machine paused in it.
func TestTally_ofASoak(t *testing.T) {
	ends := func(long bool, err error) bool {
		n := tally{long: long}
		return n.add(err, true) || n.enough()
	}
	assert.False(t, ends(false, nil), "for some seconds")
	assert.True(t, ends(true, nil))
	assert.False(t, ends(true, &doubtful{errSeen}))
}

// How often a promise was kept is known wherever it is asked, and what the other trials saw.
func TestExamine_countsTrials(t *testing.T) {
	before, beforeLong := respite, longEnough
	respite, longEnough = time.Millisecond, time.Millisecond
	defer func() { respite, longEnough = before, beforeLong }()
	doubt := &doubtful{errSeen}
	nothing := &doubtful{fmt.Errorf("%w: two at once, or none", errInDoubt)}
	examine := func(h Harness, chance bool, verdicts ...error) Result {
		h.TTL = time.Millisecond
		ran := 0
		r := row{name: "s", promise: "One at a time.", chance: chance, body: func(e *env) {
			ran++
			e.end(verdicts[min(ran, len(verdicts))-1])
		}}
		return Examine(t, r.scenario(), h)
	}
	listed := map[string]string{"s": "by design"}
	for _, c := range []struct {
		what           string
		h              Harness
		allowed        int
		verdicts       []error
		want           Outcome
		trials, doubts int
	}{
		{"kept", Harness{}, 0, []error{nil}, Kept, 1, 0},
		{"kept in most", Harness{}, 4, []error{doubt, doubt, nil}, Kept, 5, 2},
		{"kept in most, where none may be in doubt", Harness{}, 0, []error{doubt, doubt, nil}, Broken, 5, 2},
		{"broken in each", Harness{}, 4, []error{doubt}, Broken, 5, 5},
		{"says nothing in each", Harness{}, 4, []error{nothing}, Undecided, 5, 5},
		{"says nothing in some, and is never kept", Harness{}, 4, []error{nothing, doubt}, Undecided, 5, 5},
		{"says nothing once, and is kept", Harness{}, 4, []error{nothing, nil}, Kept, 5, 1},
		{"broken for certain, at last", Harness{}, 4, []error{doubt, errSeen}, Broken, 2, 1},
		{"known, and seen", Harness{Deviations: listed}, 0, []error{nil, doubt}, Known, 3, 2},
		{"known to be broken sometimes, and seen", Harness{Sometimes: listed}, 4, []error{doubt, nil}, Known, 5, 1},
		{"known to be broken sometimes, and not seen", Harness{Sometimes: listed}, 4, []error{nil}, Unseen, 1, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			defer Doubts(c.allowed)()
			r := examine(c.h, false, c.verdicts...)
			for range 20 { // a pause of the machine changes the outcome
				if r.Paused == 0 {
					break
				}
				r = examine(c.h, false, c.verdicts...)
			}
			assert.Equal(t, c.want, r.Outcome, "%+v", r)
			assert.Equal(t, c.trials, r.Trials, "trials")
			assert.Equal(t, c.doubts, r.Doubts, "in doubt")
			assert.Zero(t, r.Paused, "the machine paused each time: this test says nothing then")
			if c.doubts > 0 {
				assert.Contains(t, r.Seen, "two at once")
			}
		})
	}
}
