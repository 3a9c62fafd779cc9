package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/internal/history"
)

// A history that is refused is kept, and what is said of it names the file, and a command that has
// the same clients and faults again.
func TestRefuse(t *testing.T) {
	dir, before := t.TempDir(), *evidenceDir
	*evidenceDir = dir
	t.Cleanup(func() { *evidenceDir = before })
	h, err := history.Read("../internal/history/testdata/two-holders.json")
	require.NoError(t, err)
	h.Seed = 42
	e := newEnv(t, Harness{TTL: time.Second, test: "TestConformance/one_server"})
	defer e.close()
	e.scenario = "a history though the server's clock jumps"
	_, verdict := e.trial.Run(time.Minute, func() { e.refuse(h, h.Check()) })
	for _, part := range []string{
		"token 5", "token 6", dir, "locker check --replay " + dir,
		"go test github.com/go-locker/locker/conformance -run '^TestConformance$/^one_server$/^a_history_though_the_server.s_clock_jumps$' -conformance.seed=42",
	} {
		require.ErrorContains(t, verdict, part)
	}
	_, doubted := errors.AsType[*engine.Doubt](verdict)
	assert.False(t, doubted, "two holders are certain")
}
