package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance/internal/engine"
)

func TestShortcoming(t *testing.T) {
	enough := score{holds: 20, fewest: 10, hits: 4, wanted: 2}
	for _, c := range []struct {
		what string
		but  func(*score)
		says string
	}{
		{"nothing", func(*score) {}, ""},
		{"few hits", func(s *score) { s.hits, s.faults = 1, map[string]int{"Revoke": 7} }, "of 7 faults 1 hit a holder"},
		{"as few, of several histories", func(s *score) { s.hits, s.wanted, s.histories = 2, 4, 2 }, ""},
		{"none, of several histories", func(s *score) { s.hits, s.wanted, s.histories = 0, 2, 2 }, "want 1"},
		{"few holds", func(s *score) { s.holds = 2 }, "only 2 holds"},
		{"undecided", func(s *score) { s.undecided = []uint64{42} }, "seeds [42]"},
	} {
		s := enough
		c.but(&s)
		err := s.shortcoming()
		if c.says == "" {
			require.NoError(t, err, c.what)
			continue
		}
		require.ErrorIs(t, err, engine.ErrInDoubt, c.what)
		assert.ErrorContains(t, err, c.says, c.what)
	}
}

// What says nothing of the lock is no sighting of what the lock is known to break.
func TestJudge_inDoubt(t *testing.T) {
	few := (score{wanted: 2}).shortcoming()
	assert.Equal(t, Unseen, judge(Scenario{}, engine.Tally{}, few, true, "by design").Outcome)
	r := judge(Scenario{}, engine.Tally{}, few, false, "")
	assert.Equal(t, Undecided, r.Outcome)
	assert.True(t, r.Outcome.failed(), "a test that decides nothing is no test")
	assert.Contains(t, r.String(), "undecided")
}
