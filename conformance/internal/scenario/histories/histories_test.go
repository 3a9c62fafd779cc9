package histories

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/internal/history"
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

// A history that is refused is kept, and what is said of it names the file, and a command that has
// the same clients and faults again.
func TestRefuse(t *testing.T) {
	dir, before := t.TempDir(), *evidenceDir
	*evidenceDir = dir
	t.Cleanup(func() { *evidenceDir = before })
	h, err := history.Read("../../../../internal/history/testdata/two-holders.json")
	require.NoError(t, err)
	h.Seed = 42
	e := party.NewEnv(t, harness.Harness{TTL: time.Second, Test: "TestConformance/one_server"})
	defer e.Close()
	e.Scenario = "a history though the server's clock jumps"
	_, verdict := e.Trial.Run(time.Minute, func() { refuse(e, h, h.Check()) })
	for _, part := range []string{
		"token 5", "token 6", dir, "locker check --replay " + dir,
		"go test github.com/go-locker/locker/conformance/internal/scenario/histories -run " +
			"'^TestConformance$/^one_server$/^a_history_though_the_server.s_clock_jumps$' " +
			"-conformance.seed=42",
	} {
		require.ErrorContains(t, verdict, part)
	}
	_, doubted := errors.AsType[*engine.Doubt](verdict)
	assert.False(t, doubted, "two holders are certain")

	h = &history.History{
		Demand: history.Undisturbed, Clients: []history.Client{{Name: "x", TTL: time.Second}},
		Events: []history.Event{{Op: history.OpTryLock, Return: 1, Err: history.IsHeld}},
	}
	free := party.NewEnv(t, e.Harness)
	defer free.Close()
	_, verdict = free.Trial.Run(time.Minute, func() { refuse(free, h, h.Check()) })
	_, doubted = errors.AsType[*engine.Doubt](verdict)
	assert.True(t, doubted, "that the lock was free is not: %v", verdict)
}
