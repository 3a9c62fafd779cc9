package redisscript

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/redisscript/wait"
	"github.com/go-locker/locker/internal/test/claims"
)

// puppet is a Runner whose server says what the test has it say.
type puppet struct {
	run    func(ctx context.Context, s *script.Script, owner string) (any, error)
	dial   func(ctx context.Context) (wait.Subscription, error)
	locate func() (wait.Publisher, error) // nil: one station, dialled by dial
}

func (p *puppet) Run(ctx context.Context, calls []script.Call, replies []script.Reply) {
	for i, c := range calls {
		reply, err := p.run(ctx, c.Script, argument(c.Script, c.Args, "owner").(string))
		var not notSent
		replies[i] = script.Reply{Value: reply, Err: err, MayHaveRun: err != nil && !errors.As(err, &not)}
	}
}

// notSent is the error of a request that the server has not got.
type notSent struct{ error }

// noClient is that of a Driver whose client is another's.
func noClient() error { return nil }

func (p *puppet) AtOnce() int { return send.MostAtOnce }

func (p *puppet) HeedsDeadlines() bool { return false }

func (p *puppet) Sharded() bool { return false }

func (p *puppet) Scans(context.Context) ([]Scan, error) { return nil, nil }

func (p *puppet) Locate(context.Context, string) (wait.Publisher, error) {
	if p.locate != nil {
		return p.locate()
	}
	return wait.Publisher{Name: "one", Dial: p.dial}, nil
}

// wire is a wait.Subscription that receives what the test puts on it.
type wire struct {
	events   chan wait.Event
	closed   chan struct{}
	once     sync.Once
	pings    atomic.Int32
	channels sync.Map
}

func newWire() *wire {
	return &wire{events: make(chan wait.Event, 100), closed: make(chan struct{})}
}

func (w *wire) Subscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		w.channels.Store(c, true)
		w.events <- wait.Event{Kind: wait.Subscribed, Channel: c}
	}
	return nil
}

func (w *wire) Unsubscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		w.channels.Delete(c)
		w.events <- wait.Event{Kind: wait.Unsubscribed, Channel: c}
	}
	return nil
}

func (w *wire) Ping(context.Context) error { w.pings.Add(1); return nil }

var errWireClosed = errors.New("the wire is closed")

func (w *wire) Receive(time.Duration) (wait.Event, error) {
	select {
	case e := <-w.events:
		return e, nil
	case <-w.closed:
		return wait.Event{}, errWireClosed
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

// argument returns what a script was given under a name. All scripts of a claim begin alike.
func argument(_ *script.Script, args []any, name string) any {
	return args[slices.Index([]string{"owner", "expires", "due"}, name)]
}

// channelOf returns where a Driver's waiters for the lock x are told.
func channelOf(d *Driver, name string) string {
	return script.Key(name) + ":" + strings.Trim(d.hub.Prefix()[1:], "/")
}

func heldReply(place int64) []any {
	return []any{int64(script.Held), int64(60000), nowMicro(), place, int64(0), int64(0), "other", "host 7"}
}

func grantedReply() []any { return []any{int64(script.Granted), nowMicro(), nowMicro(), int64(0)} }

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
