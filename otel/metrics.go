package otel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// metrics are the instruments.
type metrics struct {
	wait, hold, left, lag metric.Float64Histogram
	losses                metric.Int64Counter
	active, waiting       metric.Int64UpDownCounter
}

// Buckets, in seconds: a wait may take as long as others hold, and what is left of a TTL is at most that.
var (
	waitTimes = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	holdTimes = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	lefts     = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120}
	lags      = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40}
)

func newMetrics(m metric.Meter) (all metrics) {
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		return usable(h, err, metric.Float64Histogram(noop.Float64Histogram{}))
	}
	all.wait = histogram("locker.wait.duration", "How long it took to take a lock, or to fail to.", waitTimes)
	all.hold = histogram("locker.hold.duration", "How long locks were held.", holdTimes)
	all.left = histogram("locker.hold.validity_left", "How much time holds had left when they were unlocked.", lefts)
	all.lag = histogram("locker.renewal.lag", "How late renewals were sent.", lags)

	losses, err := m.Int64Counter("locker.hold.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Holds that ended before they were unlocked."))
	all.losses = usable(losses, err, metric.Int64Counter(noop.Int64Counter{}))

	upDown := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		return usable(c, err, metric.Int64UpDownCounter(noop.Int64UpDownCounter{}))
	}
	all.active = upDown("locker.hold.active", "{lock}", "Locks that are held.")
	all.waiting = upDown("locker.wait.active", "{call}", "Calls that wait for a lock.")
	return all
}

// observeOldest has m ask o for the age of its oldest hold.
func observeOldest(m metric.Meter, o *observer) {
	_, err := m.Float64ObservableGauge("locker.hold.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest hold has lasted."),
		metric.WithFloat64Callback(func(_ context.Context, to metric.Float64Observer) error {
			for label, age := range o.holds.oldest() {
				to.Observe(age.Seconds(), metric.WithAttributes(o.labelled(label)...))
			}
			return nil
		}))
	if err != nil {
		otel.Handle(err)
	}
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
