package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in main
	os.Exit(m.Run())
}

// Every part, in brief, has figures of every library, and its table on the page.
func TestRun_measuresEveryLibraryOnRealServers(t *testing.T) {
	programs := map[string]string{
		"redis": "redis-server", "quorum": "redis-server", "etcd": "etcd", "zookeeper": "zookeeper-server", "postgres": "postgres",
	}
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			testserver.Need(t, programs[s.name])
			o := options{rounds: 1, duration: 300 * time.Millisecond, warmUp: 100 * time.Millisecond, most: 8, idle: time.Second}
			b := &book{}
			require.NoError(t, o.measure(t.Context(), b, []string{s.name}, "", t.Output()))
			page := b.print()
			if s.name == "redis" {
				require.NoError(t, b.draw(filepath.Join(t.TempDir(), "chart.svg")))
			}
			for i, p := range s.parts {
				assert.Contains(t, page, "\n### "+s.title+": "+p.name+"\n")
				for _, l := range s.libraries {
					measured := slices.ContainsFunc(b.Tables[i].Rows, func(r *row) bool { return r.Library == l.name })
					assert.Equal(t, !slices.Contains(p.without, l.name), measured, "%s of %s", p.name, l.name)
				}
			}
		})
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
