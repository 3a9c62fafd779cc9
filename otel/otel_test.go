package otel_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/otel"
)

const (
	ttl  = 10 * time.Second
	life = ttl - ttl/100 - 2*time.Millisecond
)

// telemetry keeps what is made of a Client's doings, in the bubble of a test.
type telemetry struct {
	tracer trace.Tracer
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
	driver *backend

	observed locker.Option
	client   *locker.Client // without renewal
}

func bubble(t *testing.T, f func(t *testing.T, r *telemetry), opts ...otel.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &telemetry{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
		traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
		meters := metric.NewMeterProvider(metric.WithReader(r.reader))
		r.tracer = traces.Tracer("application")
		r.driver = &backend{Driver: memory.NewDriver(memory.InSpace(t.Name())), tracer: traces.Tracer("client library")}
		r.observed = locker.WithObserver(otel.NewObserver(
			append(opts, otel.WithTracerProvider(traces), otel.WithMeterProvider(meters))...))
		var err error
		r.client, err = locker.New(r.driver, locker.WithTTL(ttl), locker.WithoutRenewal(), r.observed)
		require.NoError(t, err)
		defer r.client.Close()
		f(t, r)
	})
}

// backend is a memory driver whose requests are spans, as those of an instrumented client library are, and may fail.
type backend struct {
	driver.Driver
	tracer trace.Tracer
	fails  atomic.Pointer[error]
}

func (d *backend) fail(err error) { d.fails.Store(&err) }

type lease struct {
	driver.Claim
	backend *backend
}

func (d *backend) request(ctx context.Context, name string, request func() error) error {
	_, span := d.tracer.Start(ctx, name)
	defer span.End()
	if err := d.fails.Load(); err != nil && *err != nil {
		return *err
	}
	return request()
}

func (d *backend) Claim(req driver.Request) driver.Claim { return lease{d.Driver.Claim(req), d} }

func (l lease) Ask(ctx context.Context) (next time.Duration, err error) {
	err = l.backend.request(ctx, "take", func() error { next, err = l.Claim.Ask(ctx); return err })
	return next, err
}

func (l lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.backend.request(ctx, "extend it", func() error { return l.Claim.Extend(ctx, ttl) })
}

func (l lease) Release(ctx context.Context) error {
	return l.backend.request(ctx, "give back", func() error { return l.Claim.Release(ctx) })
}

// tree are the spans that have ended, in that order, each with those that it is in.
func (r *telemetry) tree() (paths []string) {
	synctest.Wait()
	byID := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	for _, s := range r.spans.Ended() {
		byID[s.SpanContext().SpanID()] = s
	}
	for _, s := range r.spans.Ended() {
		path := []string{s.Name()}
		for p := byID[s.Parent().SpanID()]; p != nil; p = byID[p.Parent().SpanID()] {
			path = append([]string{p.Name()}, path...)
		}
		paths = append(paths, strings.Join(path, " > "))
	}
	return paths
}

// last is the latest span of that name to have ended.
func (r *telemetry) last(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var last sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			last = s
		}
	}
	require.NotNil(t, last, name)
	return last
}

func attrs(s sdktrace.ReadOnlySpan) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

func TestSpans_nestBetweenTheApplicationsAndTheClientLibrarys(t *testing.T) {
	bubble(t, func(t *testing.T, r *telemetry) {
		ctx, handle := r.tracer.Start(t.Context(), "handle")
		m := r.client.Mutex("orders/42")
		require.NoError(t, m.Do(ctx, func(ctx context.Context) error {
			_, span := r.tracer.Start(ctx, "work")
			span.End()
			return m.Extend(ctx)
		}))
		require.NoError(t, m.TryLock(ctx))
		require.NoError(t, m.Unlock(context.WithoutCancel(ctx)))
		handle.End()
		assert.Equal(t, []string{
			"handle > lock > take", "handle > lock",
			"handle > work",
			"handle > extend > extend it", "handle > extend",
			"handle > unlock > give back", "handle > unlock",
			"handle > trylock > take", "handle > trylock",
			"handle > unlock > give back", "handle > unlock",
			"handle",
		}, r.tree())
	})
}

func TestSpans_sayWhichLockAndWhatCameOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *telemetry) {
		ctx := t.Context()
		m, n := r.client.Mutex("orders/42"), r.client.Mutex("orders/42")
		require.NoError(t, m.Lock(ctx))
		token := int64(m.FencingToken())
		lock := r.last(t, "lock")
		assert.Equal(t, map[attribute.Key]any{
			"locker.lock.name": "orders/42", "locker.operation.name": "lock",
			"locker.lock.contended": false, "locker.hold.fencing_token": token,
		}, attrs(lock))
		assert.Equal(t, codes.Unset, lock.Status().Code)
		assert.Equal(t, trace.SpanKindInternal, lock.SpanKind())

		require.ErrorIs(t, n.TryLock(ctx), locker.ErrHeld)
		denied := r.last(t, "trylock")
		assert.Equal(t, codes.Unset, denied.Status().Code, "an answer, and no failure")
		assert.Equal(t, map[attribute.Key]any{
			"locker.lock.name": "orders/42", "locker.operation.name": "trylock", "locker.lock.contended": true,
		}, attrs(denied))

		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := n.Lock(brief)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		failed := r.last(t, "lock")
		assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: err.Error()}, failed.Status())
		assert.Equal(t, "held", attrs(failed)["error.type"])
		assert.Equal(t, true, attrs(failed)["locker.lock.contended"])

		<-m.Hold().Lost()
		require.ErrorIs(t, m.Unlock(ctx), locker.ErrLost)
		lost := r.last(t, "unlock")
		assert.Equal(t, codes.Error, lost.Status().Code)
		assert.Equal(t, map[attribute.Key]any{
			"locker.lock.name": "orders/42", "locker.operation.name": "unlock",
			"locker.hold.fencing_token": token, "error.type": "lost",
		}, attrs(lost))
	})
}

// opError is the client library's own, as of package net.
type opError struct{ timeout bool }

func (e *opError) Error() string { return "read: connection" }
func (e *opError) Timeout() bool { return e.timeout }

func TestSpans_haveFewTypesOfErrors(t *testing.T) {
	bubble(t, func(t *testing.T, r *telemetry) {
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("a cause of the caller's"))
		ctx := t.Context()
		lock := func(name string, opts ...locker.MutexOption) error { return r.client.Mutex(name, opts...).Lock(ctx) }
		for want, fail := range map[string]func() error{
			"unsupported": func() error { return lock("x", locker.WithTTL(-1)) },
			"canceled":    func() error { return r.client.Mutex("x").Lock(ended) },
			"timeout": func() error {
				r.driver.fail(&opError{timeout: true})
				return lock("x")
			},
			"*otel_test.opError": func() error {
				r.driver.fail(&opError{})
				return lock("x")
			},
			"*errors.errorString": func() error {
				r.driver.fail(io.EOF)
				return lock("x")
			},
		} {
			require.Error(t, fail())
			assert.Equal(t, want, attrs(r.last(t, "lock"))["error.type"])
		}
		require.ErrorIs(t, r.client.Mutex("x").Extend(ctx), locker.ErrNotHeld)
		assert.Equal(t, "not_held", attrs(r.last(t, "extend"))["error.type"])
		require.NoError(t, r.client.Close())
		require.ErrorIs(t, lock("x"), locker.ErrClosed)
		assert.Equal(t, "closed", attrs(r.last(t, "lock"))["error.type"])
	})
}

func TestWithLabel_isOnSpansAndMetrics(t *testing.T) {
	label := func(name string) string {
		kind, _, _ := strings.Cut(name, "/")
		return kind
	}
	bubble(t, func(t *testing.T, r *telemetry) {
		for _, name := range []string{"orders/1", "orders/2", "bills/1"} {
			require.NoError(t, r.client.Mutex(name).Lock(t.Context()))
		}
		assert.Equal(t, []string{"lock orders > take", "lock orders", "lock orders > take", "lock orders", "lock bills > take", "lock bills"}, r.tree())
		assert.Equal(t, "orders", attrs(r.last(t, "lock orders"))["locker.lock.label"])
		assert.Equal(t, "redis", attrs(r.last(t, "lock orders"))["db.system.name"])
		all := r.collect(t)
		assert.Equal(t, point{sum: 2}, all["locker.hold.active {lock} db.system.name=redis,locker.lock.label=orders"])
		assert.Equal(t, point{sum: 1}, all["locker.hold.active {lock} db.system.name=redis,locker.lock.label=bills"])
	}, otel.WithLabel(label), otel.WithAttributes(attribute.String("db.system.name", "redis")))
}

// Without an SDK there is nobody to tell, and the span of another instrumentation must not be ended.
func TestObserver_withoutAnSDK(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("x").Start(t.Context(), "handle")
	for _, opts := range [][]otel.Option{nil, {
		otel.WithTracerProvider(tracenoop.NewTracerProvider()), otel.WithMeterProvider(metricnoop.NewMeterProvider()),
	}} {
		c, err := memory.New(locker.WithObserver(otel.NewObserver(opts...)))
		require.NoError(t, err)
		require.NoError(t, c.Mutex(t.Name()).Do(ctx, func(context.Context) error { return nil }))
		require.NoError(t, c.Close())
	}
	assert.Empty(t, spans.Ended())
	span.End()
	require.Len(t, spans.Ended(), 1)
	assert.Empty(t, spans.Ended()[0].Attributes())
}
