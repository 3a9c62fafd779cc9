package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun_printsSpansMetricsAndTheLog(t *testing.T) {
	var out, logs bytes.Buffer
	require.NoError(t, run(t.Context(), &out, &logs))
	var names []string
	for _, m := range regexp.MustCompile(`"Name":"([^"]*)"`).FindAllStringSubmatch(out.String(), -1) {
		names = append(names, m[1])
	}
	assert.Subset(t, names, []string{
		"POST /orders", "lock orders", "trylock orders", "unlock orders", "unlock bills",
		"locker.wait.duration", "locker.hold.duration", "locker.hold.validity_left", "locker.hold.losses",
		"locker.hold.active", "locker.renewal.lag",
	})
	assert.Contains(t, logs.String(), `msg="lock lost" locker.name=bills/1`)
}
