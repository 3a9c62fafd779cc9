package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/servertest"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestRun(t *testing.T) {
	testserver.Need(t, "postgres", "initdb")
	r, out, charts := servertest.Run[Results](t, run,
		"-rounds", "1", "-duration", "200ms", "-warm-up", "300ms", "-alone", "1", "-waiters", "4")
	require.Len(t, r.Apart, len(libraries))
	require.Len(t, r.Contended, len(libraries))
	for i, l := range libraries {
		a, c := r.Apart[i], r.Contended[i]
		assert.Positive(t, a.Pairs, l.Name)
		assert.Equal(t, 1, a.Load.Connections, "%s: alone", l.Name)
		assert.Zero(t, a.Errors, "%s: %s", l.Name, a.Error)
		assert.Positive(t, c.Acquisitions, l.Name)
		assert.Positive(t, c.Load.Connections, "%s: four waiters", l.Name)
		assert.Zero(t, c.Errors, "%s: %s", l.Name, c.Error)
		assert.Zero(t, c.Overlaps, l.Name)
		assert.Contains(t, out, "\n| 4 | one | "+l.Name+" |")
	}
	assert.Equal(t, []string{"postgres-apart.svg"}, charts)
}
