package otel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// metrics are the instruments.
type metrics struct {
	wait, hold, left, lag metric.Float64Histogram
	losses                metric.Int64Counter
	active                metric.Int64UpDownCounter
}

// Buckets, in seconds: a wait may take as long as others hold, and what is left of a TTL is at most that.
var (
	waits = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	holds = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	lefts = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120}
	lags  = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40}
)

func newMetrics(m metric.Meter) (all metrics) {
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		return usable(h, err, metric.Float64Histogram(noop.Float64Histogram{}))
	}
	all.wait = histogram("locker.wait.duration", "How long it took to take a lock, or to fail to.", waits)
	all.hold = histogram("locker.hold.duration", "How long locks were held.", holds)
	all.left = histogram("locker.hold.validity_left", "How long holds would have lasted yet when they were unlocked.", lefts)
	all.lag = histogram("locker.renewal.lag", "How long after they were due renewals were sent.", lags)

	losses, err := m.Int64Counter("locker.hold.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Holds that ended before they were unlocked."))
	all.losses = usable(losses, err, metric.Int64Counter(noop.Int64Counter{}))

	active, err := m.Int64UpDownCounter("locker.hold.active", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	all.active = usable(active, err, metric.Int64UpDownCounter(noop.Int64UpDownCounter{}))
	return all
}

// usable reports err as OpenTelemetry has such errors reported: to lock goes on without a metric.
func usable[T comparable](instrument T, err error, idle T) T {
	if err != nil {
		otel.Handle(err)
	}
	var none T
	if instrument == none {
		return idle
	}
	return instrument
}
