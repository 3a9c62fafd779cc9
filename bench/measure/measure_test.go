package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in main
	os.Exit(m.Run())
}

// Every part, in brief, has figures of every library, and a row of the page.
func TestRun_measuresEveryLibraryOnRealServers(t *testing.T) {
	programs := map[string]string{
		"redis": "redis-server", "cluster": "redis-server", "quorum": "redis-server", "etcd": "etcd", "zookeeper": "zookeeper-server", "postgres": "postgres",
	}
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			testserver.Need(t, programs[s.name])
			dir := t.TempDir()
			file, page := filepath.Join(dir, "bench.json"), filepath.Join(dir, "bench.md")
			require.NoError(t, run(t.Context(), []string{
				"-quick", "-only", s.name,
				"-json", file, "-page", page,
			}, t.Output()))
			b, err := load(file)
			require.NoError(t, err)
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Len(t, b.Tables, len(s.parts))
			for i, p := range s.parts {
				checkTable(t, b.Tables[i], s, p)
				assert.Contains(t, string(text), "\n### "+s.title+": "+p.name+"\n")
			}
			if s.name != "redis" {
				return
			}
			chart := filepath.Join(dir, "chart.svg")
			require.NoError(t, run(t.Context(), []string{
				"-render", "-json", file,
				"-page", page, "-chart", chart,
			}, t.Output()))
			assert.FileExists(t, chart)
			again, err := os.ReadFile(page)
			require.NoError(t, err)
			assert.Equal(t, string(text), string(again), "the page of the figures that were read back")
		})
	}
}

func checkTable(t *testing.T, got *table, s subject, p part) {
	t.Helper()
	for _, l := range s.libraries {
		found := false
		for _, r := range got.Rows {
			if r.Library != l.name {
				continue
			}
			found = true
			for column, values := range r.Figures {
				sum := 0.0
				for _, v := range values {
					sum += v
				}
				switch {
				case column == columns[p.name][0] && !slices.Contains([]string{"held", "idle", "names"}, p.name):
					assert.Positive(t, sum, "%s/%s of %s: %s", s.name, p.name, l.name, column)
				case column == "overlaps" || column == "lost":
					assert.Zero(t, sum, "%s/%s of %s: %s", s.name, p.name, l.name, column)
				}
			}
		}
		if p.name != "held" { // measured of libraries that renew
			assert.Equal(t, !slices.Contains(p.without, l.name), found, "%s/%s: a row of %s", s.name, p.name,
				l.name)
		}
	}
}

// The ratio is to the same round's, in the same cell: 2/1, 9/3 and 4/2.
func TestPrint_ratioIsWithinTheRound(t *testing.T) {
	tb := &table{What: "pairs"}
	for _, f := range []float64{1, 3, 2} {
		tb.add("c", "base", figures{"pair µs": f, "errors": 1})
	}
	for _, f := range []float64{2, 9, 4} {
		tb.add("c", "ours", figures{"pair µs": f})
	}
	var out strings.Builder
	tb.print(&out, "base")
	assert.Contains(t, out.String(), "||ours|4.00(2.00–9.00)|2.00|")
}
