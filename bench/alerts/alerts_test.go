// Package alerts has Prometheus' own engine judge the alert rules, over what an application counts in
// outages that take no time here.
package alerts

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/otel"
)

// recorded is what Prometheus has scraped, by the labels of the series.
type recorded map[string]*promql.Series

// scrape takes in what the exporter shows.
func (r recorded) scrape(t *testing.T, exporter prometheus.Gatherer) {
	families, err := exporter.Gather()
	require.NoError(t, err)
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, families...)
	require.NoError(t, err)
	for _, s := range samples {
		series := r[s.Metric.String()]
		if series == nil {
			b := labels.NewBuilder(labels.FromStrings("job", "app"))
			for name, value := range s.Metric {
				b.Set(string(name), string(value))
			}
			series = &promql.Series{Metric: b.Labels()}
			r[s.Metric.String()] = series
		}
		series.Floats = append(series.Floats, promql.FPoint{T: int64(s.Timestamp), F: float64(s.Value)})
	}
}

func (r recorded) find(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{SeriesSet: storage.EmptySeriesSet()}
	for _, s := range r {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			found.rest = append(found.rest, promql.NewStorageSeries(*s))
		}
	}
	return found
}

// seriesSet never fails.
type seriesSet struct {
	storage.SeriesSet
	rest []storage.Series // At returns the first one
	on   bool             // Next was called before
}

func (s *seriesSet) Next() bool {
	if s.on {
		s.rest = s.rest[1:]
	}
	s.on = true
	return len(s.rest) > 0
}

func (s *seriesSet) At() storage.Series { return s.rest[0] }

// alerts returns the rules that fire in some minute of the recording, with the values of the label
// locker_hold_end_cause.
func (r recorded) alerts(t *testing.T, from, to time.Time) map[string]string {
	text, err := os.ReadFile("../../examples/observability/rules.yml")
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text)
	require.Empty(t, errs)
	all := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: r.find}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour})
	fired := map[string]string{}
	for _, rule := range groups.Groups[0].Rules {
		var since time.Time
		for at := from; !at.After(to); at = at.Add(time.Minute) {
			q, err := engine.NewInstantQuery(t.Context(), all, nil, rule.Expr.Value, at)
			require.NoError(t, err, rule.Alert.Value)
			result := q.Exec(t.Context())
			require.NoError(t, result.Err, rule.Alert.Value)
			found, err := result.Vector()
			require.NoError(t, err)
			if len(found) == 0 {
				since = time.Time{}
				continue
			}
			if since.IsZero() {
				since = at
			}
			if at.Sub(since) >= time.Duration(rule.For) {
				fired[rule.Alert.Value] = found[0].Metric.Get("locker_hold_end_cause")
			}
		}
		require.NoError(t, engine.Close())
	}
	return fired
}

// application returns what alerts while an application does its work for a while, healthy at first.
func application(t *testing.T, lasts time.Duration, outage func(*locktest.Client), work func(ctx context.Context, c *locker.Client)) (fired map[string]string) {
	synctest.Test(t, func(t *testing.T) {
		exporter := prometheus.NewRegistry()
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(exporter))
		require.NoError(t, err)
		c := locktest.New(t, locker.WithObserver(otel.NewObserver(
			otel.WithLabel(func(name string) string { return name }),
			otel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))))
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); work(ctx, c.Client) }()
		r := recorded{}
		from := time.Now()
		for began := from; time.Since(began) < lasts; time.Sleep(15 * time.Second) {
			if outage != nil && time.Since(began) > 5*time.Minute {
				outage(c)
				outage = nil
			}
			r.scrape(t, exporter)
		}
		fired = r.alerts(t, from, time.Now())
		c.Up()
		c.Slow(0)
		cancel()
		<-ended
	})
	return fired
}

// calls makes calls that are limited to so much time, 0: not at all, one a second.
func calls(limit time.Duration, call func(*locker.Mutex, context.Context) error) func(context.Context, *locker.Client) {
	return func(ctx context.Context, c *locker.Client) {
		for m := c.Mutex("job"); ctx.Err() == nil; time.Sleep(time.Second) {
			limited, cancel := ctx, context.CancelFunc(func() {})
			if limit > 0 {
				limited, cancel = context.WithTimeout(ctx, limit)
			}
			if call(m, limited) == nil {
				_ = m.Unlock(ctx)
			}
			cancel()
		}
	}
}

func TestLockBackendFails_firesInEachOutage(t *testing.T) {
	for name, outage := range map[string]func(*locktest.Client){
		"a closed port": (*locktest.Client).Down,
		"silence":       (*locktest.Client).Hang,
		"a refusal": func(c *locktest.Client) {
			for range 10_000 {
				c.FailNext(errors.New("NOPERM"))
			}
		},
		"slowness": func(c *locktest.Client) { c.Slow(16 * time.Second) }, // more than half a TTL
	} {
		for method, call := range map[string]func(*locker.Mutex, context.Context) error{"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock} {
			for _, limit := range []time.Duration{0, 2 * time.Second, 20 * time.Second} {
				fired := application(t, 20*time.Minute, outage, calls(limit, call))
				assert.Equal(t, map[string]string{"LockBackendFails": ""}, fired, "%s, %s within %v", name, method, limit)
			}
		}
	}
}

func TestRules_ofOtherEvents(t *testing.T) {
	hold := func(name string) func(context.Context, *locker.Client) {
		return func(ctx context.Context, c *locker.Client) {
			if c.Mutex(name).Lock(ctx) == nil {
				<-ctx.Done()
			}
		}
	}
	for _, c := range []struct {
		event  string
		lasts  time.Duration
		outage func(*locktest.Client)
		work   func(context.Context, *locker.Client)
		fires  map[string]string
	}{
		{"all is well", 20 * time.Minute, nil, calls(2*time.Second, (*locker.Mutex).Lock), map[string]string{}},
		{"others hold the lock, or the caller goes away", 20 * time.Minute, nil, func(ctx context.Context, c *locker.Client) {
			go hold("job")(ctx, c)
			time.Sleep(time.Second)
			go calls(2*time.Second, (*locker.Mutex).Lock)(ctx, c)
			calls(0, func(m *locker.Mutex, ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return errors.Join(m.TryLock(ctx), m.Lock(ctx))
			})(ctx, c)
		}, map[string]string{}},
		{"a renewal is not answered", 20 * time.Minute, (*locktest.Client).Hang, hold("job"), map[string]string{"LockLost": "expired", "LockRenewalsLate": ""}},
		{"a leader leads", 2 * time.Hour, nil, hold("leader"), map[string]string{}},
		{"a holder hangs", 2 * time.Hour, nil, hold("job"), map[string]string{"LockHeldLong": ""}},
		{"a crowd waits", 20 * time.Minute, nil, func(ctx context.Context, c *locker.Client) {
			for range 102 {
				go hold("job")(ctx, c)
			}
			<-ctx.Done()
		}, map[string]string{"LockWaitersPileUp": ""}},
	} {
		assert.Equal(t, c.fires, application(t, c.lasts, c.outage, c.work), c.event)
	}
}
