package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/conformance"
)

func TestCheck_known(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "known")
	known := func(text string) []string {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return []string{"--run", "^(TryLock takes a free lock|the token is 0 without a hold)$", "--known", file, "mem://"}
	}
	r := checked(t, 0, known("# nothing is known\n\n")...)
	assert.Equal(t, 2, r.count(conformance.Kept))
	r = checked(t, exitBroken, known("the token is 0 without a hold: it has none\n")...)
	assert.Equal(t, 1, r.count(conformance.Stale), "it is kept")
	for says, text := range map[string]string{
		"line 1: no scenario is called": "the lock is good: it is not\n",
		"line 2: want the name":         "\nTryLock takes a free lock\n",
	} {
		p := begin(t, append([]string{"check"}, known(text)...)...)
		assert.Equal(t, exitUsage, p.wait())
		assert.Contains(t, p.stderr.String(), says)
	}
}

// A check that has no time left says what it did not do, and is no success.
func TestCheck_limit(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := begin(t, "check", "--limit", "2s", "--run", "a long TTL|TryLock takes", "mem://")
	assert.Equal(t, exitUnreachable, p.wait(), "%s", p.stderr)
	assert.Contains(t, p.stderr.String(), "--limit")
	assert.Contains(t, p.stdout.String(), "1 promises kept")
	assert.Less(t, time.Since(began), time.Minute)
}
