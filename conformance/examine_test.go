package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// How often a promise was kept is known wherever it is asked, and what the other trials saw.
func TestExamine_countsTrials(t *testing.T) {
	before, beforeLong := engine.Respite, engine.LongEnough
	engine.Respite, engine.LongEnough = time.Millisecond, time.Millisecond
	defer func() { engine.Respite, engine.LongEnough = before, beforeLong }()
	errSeen := errors.New("two at once")
	doubt := &engine.Doubt{Seen: errSeen}
	nothing := &engine.Doubt{Seen: fmt.Errorf("%w: two at once, or none", engine.ErrInDoubt)}
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
		{"known, and kept", Harness{Deviations: listed}, 4, []error{nil}, Stale, 5, 0},
		{"known, and sometimes too, and kept", Harness{Deviations: listed, Sometimes: listed}, 4, []error{nil}, Stale, 5, 0},
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
