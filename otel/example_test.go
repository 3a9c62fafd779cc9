package otel_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/otel"
)

// An application that has set its providers, with otel.SetTracerProvider and otel.SetMeterProvider of
// go.opentelemetry.io/otel, needs none of these options.
func ExampleNewObserver() {
	ctx := context.Background()
	spans := tracetest.NewSpanRecorder() // an application has an exporter here
	observer := otel.NewObserver(
		otel.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans))),
		otel.WithAttributes(attribute.String("db.system.name", "redis")),
		// orders/42 and orders/43 are one series of metrics.
		otel.WithLabel(func(name string) string {
			label, _, _ := strings.Cut(name, "/")
			return label
		}),
	)
	client, err := locker.Open(ctx, "mem://shop", locker.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	m := client.Mutex("orders/43")
	_ = m.Lock(ctx)
	_ = m.Unlock(ctx)
	_ = m.Unlock(ctx)
	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), s.Status().Code)
	}
	// Output:
	// lock orders Unset
	// unlock orders Unset
	// unlock orders Error
}
