package conformance

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	broken := errors.New("two at once")
	certain := Scenario{Name: "s", Promise: "One at a time.", Deterministic: true}
	lucky := Scenario{Name: "s", Promise: "One at a time."}
	for _, c := range []struct {
		what     string
		scenario Scenario
		seen     error
		deviates bool
		failed   bool
		says     []string
	}{
		{what: "kept", scenario: certain},
		{"broken", certain, broken, false, true, []string{"One at a time.", "two at once"}},
		{"cannot run", certain, Skip("no server"), false, false, []string{"no server"}},
		{"known deviation, seen", certain, broken, true, false, []string{"One at a time.", "two at once", "by design"}},
		{"known deviation, gone", certain, nil, true, true, []string{"One at a time.", "by design", "kept"}},
		{"known deviation, cannot run", certain, Skip("no server"), true, false, []string{"no server"}},
		{"known deviation of luck, not seen", lucky, nil, true, false, []string{"by design", "not seen"}},
		{"known deviation of luck, seen", lucky, broken, true, false, []string{"by design", "two at once"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			failed, says := judge(c.scenario, c.seen, c.deviates, "by design")
			assert.Equal(t, c.failed, failed)
			for _, part := range c.says {
				assert.Contains(t, says, part)
			}
			if c.says == nil {
				assert.Empty(t, says, "nothing to say of what is kept")
			}
		})
	}
}

func TestUnknownDeviationsAreNamed(t *testing.T) {
	scenarios := Scenarios()
	got := unknown(map[string]string{"no such": "?", scenarios[3].Name: "by design", "another": "?"}, scenarios)
	assert.Equal(t, []string{"another", "no such"}, got)
}

func TestScenarios_haveUniqueNamesAndPromises(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		require.NotEmpty(t, s.Name)
		assert.Regexp(t, `^[A-Z].*\.$`, s.Promise, "promise of %q: a sentence", s.Name)
		assert.False(t, seen[s.Name], "two scenarios are called %q", s.Name)
		assert.NotContains(t, s.Name, "/", "the name is that of a subtest")
		seen[s.Name] = true
	}
}

func TestIsSkip(t *testing.T) {
	assert.True(t, IsSkip(Skip("no server")))
	assert.True(t, IsSkip(errors.Join(errors.New("first"), Skip("no server"))))
	assert.False(t, IsSkip(errors.New("broken")))
	assert.False(t, IsSkip(nil))
}
