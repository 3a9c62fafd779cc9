package otel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-locker/locker"
)

// inPrometheus returns the names of a metric's series there.
func inPrometheus(m metricdata.Metrics) []string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		return []string{name + "_bucket", name + "_sum", name + "_count"}
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			return []string{name + "_total"}
		}
	}
	return []string{name}
}

// The dashboard, the rules and the page have metrics and labels that there are, and every metric.
func TestObservability_usesNamesThatExist(t *testing.T) {
	names, bases := map[string]bool{}, []string{}
	bubble(t, func(t *testing.T, r *telemetry) {
		c, err := locker.New(r.driver, locker.WithTTL(ttl), r.observed)
		require.NoError(t, err)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		r.driver.fail(&opError{timeout: true}) // renewals, with a type of error
		<-m.Lost()
		r.driver.fail(nil)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, c.Close())
		var all metricdata.ResourceMetrics
		require.NoError(t, r.reader.Collect(t.Context(), &all))
		for _, m := range all.ScopeMetrics[0].Metrics {
			for _, name := range inPrometheus(m) {
				names[name] = true
			}
			bases = append(bases, strings.TrimSuffix(inPrometheus(m)[0], "_bucket"))
		}
	})
	for _, key := range []attribute.Key{"locker.hold.end_cause", "locker.lock.contended", "locker.lock.label", "locker.operation.name"} {
		names[strings.ReplaceAll(string(key), ".", "_")] = true
	}

	const dir = "../examples/observability"
	texts := map[string]string{}
	for _, file := range []string{dir + "/rules.yml", dir + "/grafana/dashboards/locker.json", "../docs/prometheus.md"} {
		text, err := os.ReadFile(filepath.FromSlash(file))
		require.NoError(t, err)
		texts[file] = string(text)
		for _, used := range regexp.MustCompile(`\blocker_\w+`).FindAllString(string(text), -1) {
			assert.True(t, names[used], "%s: there is no %s", file, used)
		}
	}
	for _, base := range bases {
		assert.Contains(t, texts[dir+"/grafana/dashboards/locker.json"], base, "the dashboard shows every metric")
		assert.Contains(t, texts["../docs/prometheus.md"], base)
	}

	var board struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(texts[dir+"/grafana/dashboards/locker.json"]), &board))
	assert.Equal(t, "locker", board.UID)
	ids := map[int]bool{}
	for _, p := range board.Panels {
		assert.False(t, ids[p.ID], "two panels have the ID %d", p.ID)
		ids[p.ID] = true
		assert.NotEmpty(t, p.Targets, p.Title)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for _, target := range p.Targets {
			assert.Equal(t, strings.Count(target.Expr, "("), strings.Count(target.Expr, ")"), target.Expr)
		}
	}
}
