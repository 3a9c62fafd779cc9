package redisscript

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// puppet is a Runner whose server says what the test has it say.
type puppet struct {
	run    func(ctx context.Context, s *Script, owner string) (any, error)
	dial   func(ctx context.Context) (Subscription, error)
	locate func() (Publisher, error) // nil: one station, dialled by dial
}

func (p *puppet) Run(ctx context.Context, calls []Call, replies []Reply) {
	for i, c := range calls {
		reply, err := p.run(ctx, c.Script, argument(c.Script, c.Args, "owner").(string))
		var not notSent
		replies[i] = Reply{Value: reply, Err: err, MayHaveRun: err != nil && !errors.As(err, &not)}
	}
}

// notSent is the error of a request that the server has not got.
type notSent struct{ error }

// noClient is that of a Driver whose client is another's.
func noClient() error { return nil }

func (p *puppet) AtOnce() int { return maxBatches }

func (p *puppet) HeedsDeadlines() bool { return false }

func (p *puppet) Sharded() bool { return false }

func (p *puppet) Scans(context.Context) ([]Scan, error) { return nil, nil }

func (p *puppet) Locate(context.Context, string) (Publisher, error) {
	if p.locate != nil {
		return p.locate()
	}
	return Publisher{Name: "one", Dial: p.dial}, nil
}

// wire is a Subscription that receives what the test puts on it.
type wire struct {
	events   chan Event
	closed   chan struct{}
	once     sync.Once
	pings    atomic.Int32
	channels sync.Map
}

func newWire() *wire {
	return &wire{events: make(chan Event, 100), closed: make(chan struct{})}
}

func (w *wire) Subscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		w.channels.Store(c, true)
		w.events <- Event{Kind: Subscribed, Channel: c}
	}
	return nil
}

func (w *wire) Unsubscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		w.channels.Delete(c)
		w.events <- Event{Kind: Unsubscribed, Channel: c}
	}
	return nil
}

func (w *wire) Ping(context.Context) error { w.pings.Add(1); return nil }

var errWireClosed = errors.New("the wire is closed")

func (w *wire) Receive(time.Duration) (Event, error) {
	select {
	case e := <-w.events:
		return e, nil
	case <-w.closed:
		return Event{}, errWireClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *wire) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

func heldReply(place int64) []any {
	return []any{int64(held), int64(60000), nowMicro(), place, int64(0), int64(0), "other", "host 7"}
}

func grantedReply() []any { return []any{int64(granted), nowMicro(), nowMicro(), int64(0)} }

const patient = 20 * time.Second

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patient):
		t.Fatalf("waited %v for %s", patient, what)
		panic("unreachable")
	}
}

// queued has a waiter ask, and returns where its end will be told.
func queued(ctx context.Context, d *Driver, req driver.Request) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := claims.Wait(ctx, d, req, func(error) {})
		done <- err
	}()
	return done
}
