// Stdout prints what OpenTelemetry makes of a few locks, in JSON: a line for each span as it ends, then one for the metrics; and
// on standard error what the Client logs.
//
//	cd otel && go run ./examples/stdout | jq
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/memory" // mem://
	lockerotel "github.com/go-locker/locker/otel"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, logs io.Writer) error {
	shutdown, err := setUp(out)
	if err != nil {
		return err
	}
	client, err := locker.Open(ctx, "mem://shop?ttl=3s",
		locker.WithLogger(slog.New(slog.NewTextHandler(logs, nil)).WithGroup("locker")),
		locker.WithObserver(lockerotel.NewObserver(lockerotel.WithLabel(kind))))
	if err != nil {
		return errors.Join(err, shutdown(ctx))
	}
	err = work(ctx, client)
	return errors.Join(err, client.Close(), shutdown(ctx)) // the Client first: its last holds are measured, too
}

// setUp is what an application does once, with exporters of its own choice.
func setUp(out io.Writer) (shutdown func(context.Context) error, err error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out))
	if err != nil {
		return nil, err
	}
	metrics, err := stdoutmetric.New(stdoutmetric.WithWriter(out))
	if err != nil {
		return nil, err
	}
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics)))
	otel.SetTracerProvider(tracers)
	otel.SetMeterProvider(meters)
	return func(ctx context.Context) error {
		return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx))
	}, nil
}

// kind is the label of a lock in metrics: orders/1 and orders/2 are of one kind.
func kind(name string) string {
	label, _, _ := strings.Cut(name, "/")
	return label
}

// work takes a lock, waits for it, renews it, is denied it, and loses it.
func work(ctx context.Context, client *locker.Client) error {
	ctx, span := otel.Tracer("shop").Start(ctx, "POST /orders")
	defer span.End()
	first, second := client.Mutex("orders/1"), client.Mutex("orders/1")
	if err := first.Lock(ctx); err != nil {
		return err
	}
	if err := second.TryLock(ctx); !errors.Is(err, locker.ErrHeld) {
		return errors.Join(fmt.Errorf("the second TryLock: want ErrHeld, got: %w", err), first.Unlock(context.WithoutCancel(ctx)))
	}
	waited := make(chan error, 1)
	go func() {
		waited <- second.Do(ctx, func(context.Context) error { return nil })
	}()
	time.Sleep(1500 * time.Millisecond) // more than the third of a TTL, after which it is renewed
	if err := first.Unlock(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := <-waited; err != nil {
		return err
	}

	bill := client.Mutex("bills/1", locker.WithTTL(100*time.Millisecond), locker.WithoutRenewal())
	err := bill.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done() // longer than the lock lasts
		return nil
	})
	if !errors.Is(err, locker.ErrLost) {
		return fmt.Errorf("the bill took longer than its lock lasted: want ErrLost, got: %w", err)
	}
	return nil
}
