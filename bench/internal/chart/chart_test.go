package chart

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/bench/internal/stats"
)

type round struct {
	name string
	x, y float64
}

func rounds() []round {
	return []round{{"a", 1, 10}, {"b", 1, 1}, {"a", 1, 20}, {"a", 8, 7}, {"a", 1, 12}}
}

func seriesOf(all []round) []Series {
	return Of(all, func(r *round) string { return r.name },
		func(r *round) float64 { return r.x }, func(r *round) float64 { return r.y })
}

func TestOf_groupsRounds(t *testing.T) {
	assert.Equal(t, []Series{
		{"a", []Point{{1, stats.Spread{Median: 12, Low: 10, High: 20}}, {8, stats.Spread{Median: 7, Low: 7, High: 7}}}},
		{"b", []Point{{1, stats.Spread{Median: 1, Low: 1, High: 1}}}},
	}, seriesOf(rounds()))
}

func TestSave_writesAnSVG(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "new")
	for file, c := range map[string]Chart{
		"linear":    {Series: seriesOf(rounds())},
		"log":       {Series: seriesOf(append(rounds(), round{"a", 16, 0})), LogY: true},
		"one-point": {Series: seriesOf(rounds()[:1])},
	} {
		c.File, c.Title, c.X, c.Y = file, "Title of it", "waiters", "pairs a second"
		require.NoError(t, c.Save(directory), file)
		raw, err := os.ReadFile(filepath.Join(directory, file+".svg"))
		require.NoError(t, err)
		for _, text := range []string{"Title of it", "waiters", "pairs a second", ">a<", ">1<"} {
			assert.Contains(t, string(raw), text, file)
		}
		d := xml.NewDecoder(strings.NewReader(string(raw)))
		for {
			if _, err = d.Token(); err != nil {
				break
			}
		}
		assert.ErrorIs(t, err, io.EOF, file)
	}
}

func TestSave_saysWhatWasWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, Chart{File: "x", Series: seriesOf(rounds())}.Save(file))
	for _, none := range [][]Series{nil, {{Name: "empty"}}} {
		require.ErrorContains(t, Chart{File: "x", Series: none}.Save(t.TempDir()), "x: a series without a point")
	}
}
