package otel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/otel"
)

// BenchmarkPair is a Lock and its Unlock in memory, which cost next to nothing themselves.
func BenchmarkPair(b *testing.B) {
	metrics := otel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())))
	for _, with := range []struct {
		name string
		opts []locker.Option
	}{
		{"not observed", nil},
		{"no SDK", []locker.Option{locker.WithObserver(otel.NewObserver(
			otel.WithTracerProvider(tracenoop.NewTracerProvider()), otel.WithMeterProvider(metricnoop.NewMeterProvider())))}},
		{"metrics", []locker.Option{locker.WithObserver(otel.NewObserver(
			otel.WithTracerProvider(tracenoop.NewTracerProvider()), metrics))}},
		{"metrics and spans", []locker.Option{locker.WithObserver(otel.NewObserver(
			otel.WithTracerProvider(sdktrace.NewTracerProvider()), metrics))}},
	} {
		b.Run(with.name, func(b *testing.B) {
			c, err := memory.New(with.opts...)
			require.NoError(b, err)
			defer c.Close()
			m := c.Mutex(b.Name())
			b.ReportAllocs()
			for b.Loop() {
				if m.Lock(b.Context()) != nil || m.Unlock(b.Context()) != nil {
					b.Fatal("not taken")
				}
			}
		})
	}
}
