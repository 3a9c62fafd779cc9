package otel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// point is one of a metric's, without what a histogram has besides.
type point struct {
	count uint64
	sum   float64
}

// collect are the metrics by name, attributes and unit.
func (r *telemetry) collect(t *testing.T) map[string]point {
	t.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(t.Context(), &all))
	points := map[string]point{}
	for _, scope := range all.ScopeMetrics {
		assert.Equal(t, "github.com/go-locker/locker/otel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			key := func(set attribute.Set) string {
				return strings.TrimSpace(m.Name + " " + m.Unit + " " + set.Encoded(attribute.DefaultEncoder()))
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points[key(p.Attributes)] = point{p.Count, p.Sum}
				}
			case metricdata.Sum[int64]:
				assert.Equal(t, m.Name == "locker.hold.losses", data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					points[key(p.Attributes)] = point{sum: float64(p.Value)}
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					points[key(p.Attributes)] = point{sum: p.Value}
				}
			default:
				assert.Fail(t, "unexpected", "%s is %T", m.Name, data)
			}
		}
	}
	return points
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, r *telemetry) {
		ctx := t.Context()
		m, n := r.client.Mutex("orders/42"), r.client.Mutex("orders/42")
		require.NoError(t, m.Lock(ctx))
		require.ErrorIs(t, n.TryLock(ctx), locker.ErrHeld)
		time.Sleep(2 * time.Second)
		require.NoError(t, m.Unlock(ctx))
		require.NoError(t, m.Lock(ctx)) // and expires
		require.NoError(t, n.Lock(ctx)) // after that
		require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
		waits := testwait.Go(func() error { return m.Lock(ctx) })
		time.Sleep(3 * time.Second)
		assert.Equal(t, map[string]point{
			"locker.wait.duration s locker.lock.contended=false,locker.operation.name=lock":   {2, 0},
			"locker.wait.duration s locker.lock.contended=true,locker.operation.name=lock":    {1, 10},
			"locker.wait.duration s locker.lock.contended=true,locker.operation.name=trylock": {1, 0},
			"locker.hold.duration s locker.hold.end_cause=unlocked":                           {1, 2},
			"locker.hold.duration s locker.hold.end_cause=expired":                            {1, life.Seconds()},
			"locker.hold.validity_left s":                                                     {1, (life - 2*time.Second).Seconds()},
			"locker.hold.losses {loss} locker.hold.end_cause=expired":                         {sum: 1},
			"locker.hold.losses {loss} locker.hold.end_cause=revoked":                         {},
			"locker.hold.losses {loss} locker.hold.end_cause=closed":                          {},
			"locker.hold.oldest_age s":                                                        {sum: 3},
			"locker.wait.active {call}":                                                       {sum: 1},
			"locker.hold.active {lock}":                                                       {sum: 1},
		}, r.collect(t))
		rw := r.client.RWMutex("readers")
		require.NoError(t, rw.RLock(ctx))
		require.ErrorIs(t, r.client.RWMutex("readers").TryLock(ctx), locker.ErrHeld)
		require.NoError(t, rw.Unlock(ctx))
		require.NoError(t, r.client.Close())
		require.ErrorIs(t, <-waits, locker.ErrClosed)
		all := r.collect(t)
		assert.Equal(t, point{1, 0}, all["locker.wait.duration s locker.lock.contended=false,locker.operation.name=rlock"])
		assert.Equal(t, point{sum: 0}, all["locker.hold.active {lock}"])
		assert.Equal(t, point{sum: 0}, all["locker.wait.active {call}"])
		assert.Equal(t, point{sum: 0}, all["locker.hold.oldest_age s"])
		assert.Equal(t, point{sum: 1}, all["locker.hold.losses {loss} locker.hold.end_cause=closed"])
	})
}

func TestMetrics_ofRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, r *telemetry) {
		m := testwait.Closed(locker.New(r.driver, locker.WithTTL(ttl), r.observed))(t).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(ttl / 2)
		assert.Equal(t, point{count: 1}, r.collect(t)["locker.renewal.lag s"])
		r.driver.fail(&opError{timeout: true})
		<-m.Hold().Lost()
		late := r.collect(t)["locker.renewal.lag s error.type=timeout"]
		assert.Greater(t, late.count, uint64(10), "it has been tried again and again")
		assert.Greater(t, late.sum, ttl.Seconds(), "ever later")
		for _, path := range r.tree() {
			assert.NotContains(t, path, " > extend it", "a renewal is of nobody's request")
		}
	})
}

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
		m := testwait.Closed(locker.New(r.driver, locker.WithTTL(ttl), r.observed))(t).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		r.driver.fail(&opError{timeout: true}) // renewals, with a type of error
		<-m.Hold().Lost()
		r.driver.fail(nil)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		synctest.Wait()
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
	for _, file := range []string{dir + "/rules.yml", dir + "/grafana/dashboards/locker.json", "../docs/observability.md"} {
		text, err := os.ReadFile(filepath.FromSlash(file))
		require.NoError(t, err)
		texts[file] = string(text)
		for _, used := range regexp.MustCompile(`\blocker_\w+`).FindAllString(string(text), -1) {
			assert.True(t, names[used], "%s: there is no %s", file, used)
		}
	}
	for _, base := range bases {
		assert.Contains(t, texts[dir+"/grafana/dashboards/locker.json"], base, "the dashboard shows every metric")
		assert.Contains(t, texts["../docs/observability.md"], base)
	}
	assert.True(t, json.Valid([]byte(texts[dir+"/grafana/dashboards/locker.json"])))
}
