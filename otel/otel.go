// Package otel has a [locker.Observer] that makes OpenTelemetry spans and metrics of what a
// [locker.Client] does:
//
//	client, err := locker.Open(ctx, url, locker.WithObserver(otel.NewObserver()))
//
// It needs the API of OpenTelemetry alone, and uses the providers that the application has set
// (go.opentelemetry.io/otel, SetTracerProvider and SetMeterProvider, which may be called later)
// unless it is given others.
//
// # Spans
//
// Each call is a span of kind internal, a child of the span of its context: lock, trylock, rlock,
// tryrlock, unlock, extend and downgrade. (Acquire is a lock. Do is a lock and an unlock; the spans
// of its function come between the two, and are children of neither.) The spans of an instrumented
// client library are children of these spans, also when an unlock is tried again.
//
//	locker.operation.name      the call, as above
//	locker.lock.name           of the lock, without the prefix
//	locker.lock.label          if WithLabel gives one; the span is then named "lock orders"
//	locker.lock.contended      of lock, trylock, rlock and tryrlock: another held the lock
//	locker.hold.fencing_token  of the hold, if there is one
//	error.type                 of a call that failed: lost, not_held, closed, unsupported, canceled,
//	                           held, deadline_exceeded, timeout, else the Go type of the client
//	                           library's error
//
// A call that fails has the status Error. A trylock or tryrlock that finds the lock held has not
// failed.
//
// Automatic renewals, and the clean-up after a call that was given up, belong to no call. They have
// no span; the spans that a client library makes for them begin a trace of their own.
//
// # Metrics
//
//	locker.wait.duration       s       what lock, trylock, rlock and tryrlock took:
//	                                   locker.operation.name, locker.lock.contended, error.type
//	locker.hold.duration       s       how long holds lasted: locker.hold.end_cause
//	locker.hold.validity_left  s       how long they had left when their unlock began
//	locker.hold.losses         {loss}  holds that ended before their unlock: locker.hold.end_cause;
//	                                   begins at 0, with the first hold
//	locker.hold.active         {lock}  locks that are held now
//	locker.hold.oldest_age     s       how long the oldest of them has been held
//	locker.wait.active         {call}  calls of lock and rlock that wait now
//	locker.renewal.lag         s       how late renewals were sent: error.type
//
// The end_cause of a hold is unlocked, abandoned (by its holder, to expire), expired (not extended
// in time), revoked (the backend said so) or closed (with the Client). The name of a lock is in no
// metric, because there may be very many names: one for each order, say. [WithLabel] maps names to
// a few labels. [WithAttributes] adds attributes that are the same for all locks of a Client, such
// as the backend.
package otel

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-locker/locker"
)

// scope names this instrumentation.
const scope = "github.com/go-locker/locker/otel"

// The attributes.
const (
	nameKey      = attribute.Key("locker.lock.name")
	labelKey     = attribute.Key("locker.lock.label")
	contendedKey = attribute.Key("locker.lock.contended")
	tokenKey     = attribute.Key("locker.hold.fencing_token")
	causeKey     = attribute.Key("locker.hold.end_cause")
	operationKey = attribute.Key("locker.operation.name")
)

// Option configures an Observer.
type Option func(*observer)

// WithTracerProvider sets where spans go, instead of the application's global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *observer) { o.tracers = p }
}

// WithMeterProvider sets where metrics go, instead of the application's global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *observer) { o.meters = p }
}

// WithAttributes adds attributes to every span and metric. Several WithAttributes add up. If a key
// comes twice, the last value counts. If the package has an attribute with the same key, the
// package's value counts.
func WithAttributes(attrs ...attribute.KeyValue) Option {
	return func(o *observer) { o.attrs = append(o.attrs, attrs...) }
}

// WithLabel adds an attribute to every span and metric. Its value is what label returns for the
// name of the lock, such as "orders" for "orders/42". There is a series of metrics for each value,
// so let there be few. An empty value is left out. label has to be quick, and is called by several
// goroutines at once.
func WithLabel(label func(name string) string) Option {
	return func(o *observer) { o.label = label }
}

// NewObserver makes an Observer for [locker.WithObserver]. Several Clients may share it.
func NewObserver(opts ...Option) locker.Observer {
	o := &observer{
		tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(),
		label: func(string) string { return "" },
	}
	for _, opt := range opts {
		opt(o)
	}
	o.tracer = o.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL), trace.WithInstrumentationVersion(version()))
	meter := o.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL), metric.WithInstrumentationVersion(version()))
	o.metrics = newMetrics(meter)
	observeOldest(meter, o)
	return locker.Observer{Start: o.start, Done: o.done, Held: o.held, Ended: o.ended, Renewed: o.renewed}
}

// version returns that of this module in the program, or an empty string.
func version() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scope && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}

type observer struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	attrs   []attribute.KeyValue
	label   func(name string) string

	tracer  trace.Tracer
	metrics metrics
	holds   holds
}

// start begins the span of a call.
func (o *observer) start(ctx context.Context, call locker.Call) context.Context {
	name, label := call.Op, o.label(call.Name)
	if label != "" {
		name += " " + label
	}
	attrs := append(o.labelled(label), nameKey.String(call.Name), operationKey.String(call.Op))
	ctx, _ = o.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
	if waits(call.Op) {
		o.metrics.waiting.Add(ctx, 1, metric.WithAttributes(o.labelled(label)...))
	}
	return ctx
}

// done ends it.
func (o *observer) done(ctx context.Context, call locker.Call, r locker.Result) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	failed, kind := failure(call.Op, r.Err)
	locks := takes(call.Op)
	if waits(call.Op) {
		o.metrics.waiting.Add(ctx, -1, metric.WithAttributes(o.labelled(o.label(call.Name))...))
	}
	if locks {
		attrs := append(o.labelled(o.label(call.Name)), operationKey.String(call.Op), contendedKey.Bool(r.Contended))
		if failed {
			attrs = append(attrs, kind)
		}
		o.metrics.wait.Record(ctx, r.Took.Seconds(), metric.WithAttributes(attrs...))
	}
	if !span.IsRecording() {
		return
	}
	if locks {
		span.SetAttributes(contendedKey.Bool(r.Contended))
	}
	if 0 < r.Token && r.Token <= math.MaxInt64 {
		span.SetAttributes(tokenKey.Int64(int64(r.Token)))
	}
	if failed {
		span.SetAttributes(kind)
		span.SetStatus(codes.Error, r.Err.Error())
	}
}

// takes reports whether a call takes a hold, a share or the lock.
func takes(op string) bool { return waits(op) || asks(op) }

// waits reports whether a call waits for other holders.
func waits(op string) bool { return op == "lock" || op == "rlock" }

// asks reports whether a call makes one attempt, of which ErrHeld is an answer.
func asks(op string) bool { return op == "trylock" || op == "tryrlock" }

func (o *observer) held(ctx context.Context, hold locker.HoldID) {
	o.metrics.active.Add(ctx, 1, o.of(hold))
	if o.holds.began(hold, o.label(hold.Name)) { // an alert on an increase needs a value from before the first loss
		for _, cause := range []locker.Cause{locker.CauseExpired, locker.CauseRevoked, locker.CauseClosed} {
			o.metrics.losses.Add(ctx, 0, o.of(hold, causeKey.String(string(cause))))
		}
	}
}

func (o *observer) ended(ctx context.Context, hold locker.HoldID, e locker.HoldEnd) {
	o.metrics.active.Add(ctx, -1, o.of(hold))
	o.holds.ended(hold, o.label(hold.Name))
	cause := causeKey.String(string(e.Cause))
	o.metrics.hold.Record(ctx, e.Held.Seconds(), o.of(hold, cause))
	switch e.Cause {
	case locker.CauseUnlocked:
		o.metrics.left.Record(ctx, e.Left.Seconds(), o.of(hold))
	case locker.CauseAbandoned: // as its holder wanted
	default:
		o.metrics.losses.Add(ctx, 1, o.of(hold, cause))
	}
}

func (o *observer) renewed(hold locker.HoldID, r locker.Renewal) {
	var kind []attribute.KeyValue
	if r.Err != nil {
		kind = append(kind, errorType(r.Err))
	}
	o.metrics.lag.Record(context.Background(), r.Lag.Seconds(), o.of(hold, kind...))
}

// of is what a measurement of a hold has for attributes.
func (o *observer) of(hold locker.HoldID, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(o.labelled(o.label(hold.Name)), more...)...)
}

// labelled returns a fresh slice of the attributes that are on everything.
func (o *observer) labelled(label string) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, len(o.attrs)+4)
	attrs = append(attrs, o.attrs...)
	if label != "" {
		attrs = append(attrs, labelKey.String(label))
	}
	return attrs
}

// types are what errors are called, the first that fits: an error that says more than one thing says the
// most important one first. A deadline is last: it is then one that no answer of the backend explains.
var types = []struct {
	err  error
	name string
}{
	{locker.ErrLost, "lost"},
	{locker.ErrNotHeld, "not_held"},
	{locker.ErrClosed, "closed"},
	{locker.ErrUnsupported, "unsupported"},
	{context.Canceled, "canceled"},
	{locker.ErrHeld, "held"},
	{context.DeadlineExceeded, "deadline_exceeded"},
}

// failure reports whether a call has failed, and as what.
func failure(op string, err error) (bool, attribute.KeyValue) {
	if err == nil {
		return false, attribute.KeyValue{}
	}
	kind := errorType(err)
	return !asks(op) || kind.Value.AsString() != "held", kind
}

// errorType is the attribute error.type of an error, one of few values.
func errorType(err error) attribute.KeyValue {
	for _, t := range types {
		if errors.Is(err, t.err) {
			return semconv.ErrorTypeKey.String(t.name)
		}
	}
	var slow interface{ Timeout() bool }
	if errors.As(err, &slow) && slow.Timeout() {
		return semconv.ErrorTypeKey.String("timeout")
	}
	if ours, ok := errors.AsType[*locker.Error](err); ok {
		err = ours.Err
	}
	return semconv.ErrorType(err)
}

// holds are those of an observer that last, and the labels that it has seen.
type holds struct {
	mu     sync.Mutex
	lasts  map[locker.HoldID]*lasting
	labels map[string]bool
}

// lasting is a hold, or several shares, which have the same token. n is below 0 if the end of a
// hold was reported before its beginning.
type lasting struct {
	label string
	since time.Time
	n     int
}

// began notes a hold. It reports whether its label is new.
func (h *holds) began(id locker.HoldID, label string) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(id, label, 1)
	first = !h.labels[label]
	h.labels[label] = true
	return first
}

func (h *holds) ended(id locker.HoldID, label string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(id, label, -1)
}

// add changes how many there are of one. The caller holds h.mu.
func (h *holds) add(id locker.HoldID, label string, n int) {
	if h.lasts == nil {
		h.lasts, h.labels = map[locker.HoldID]*lasting{}, map[string]bool{}
	}
	one := h.lasts[id]
	if one == nil {
		one = &lasting{label: label, since: time.Now()}
		h.lasts[id] = one
	}
	if one.n += n; one.n == 0 {
		delete(h.lasts, id)
	}
}

// oldest returns the age of the oldest hold of each label, and 0 if there is none.
func (h *holds) oldest() map[string]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	ages := map[string]time.Duration{}
	for label := range h.labels {
		ages[label] = 0
	}
	for _, one := range h.lasts {
		if one.n > 0 {
			ages[one.label] = max(ages[one.label], time.Since(one.since))
		}
	}
	return ages
}

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
