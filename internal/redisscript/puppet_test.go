package redisscript

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/go-locker/locker/internal/test/testwait"
)

// answer is what a server says to a call. An error is one of an unknown outcome, unless it is a
// notSent.
type answer func(ctx context.Context, c script.Call) (any, error)

// notSent is the error of a request that the server has not got.
type notSent struct{ error }

// puppet is a Runner whose server says what the test has it say, and which notes what it was asked.
type puppet struct {
	answer answer
	dial   func(ctx context.Context) (wait.Subscription, error) // nil: there are no subscriptions, for the reason of locate
	locate error
	scans  func() ([]Scan, error)

	mu      sync.Mutex
	sent    []script.Call
	batches []int // how many calls have shared each
}

func (p *puppet) Run(ctx context.Context, calls []script.Call, replies []script.Reply) {
	p.mu.Lock()
	p.batches = append(p.batches, len(calls))
	for _, c := range calls {
		c.Args = slices.Clone(c.Args)
		p.sent = append(p.sent, c)
	}
	p.mu.Unlock()
	for i, c := range calls {
		reply, err := p.answer(ctx, c)
		var not notSent
		replies[i] = script.Reply{Value: reply, Err: err, MayHaveRun: err != nil && !errors.As(err, &not)}
	}
}

// scripts returns those that were sent so far.
func (p *puppet) scripts() (all []*script.Script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.sent {
		all = append(all, c.Script)
	}
	return all
}

func (p *puppet) AtOnce() int { return send.MostAtOnce }

func (p *puppet) HeedsDeadlines() bool { return false }

func (p *puppet) Silent() {}

func (p *puppet) Sharded() bool { return false }

func (p *puppet) Scans(context.Context) ([]Scan, error) { return p.scans() }

func (p *puppet) Locate(context.Context, string) (wait.Publisher, error) {
	if p.dial == nil {
		return wait.Publisher{}, p.locate
	}
	return wait.Publisher{Name: "one", Dial: p.dial}, nil
}

// driverOf makes a Driver of p, and closes it when the test ends.
func driverOf(t *testing.T, p *puppet) *Driver {
	t.Helper()
	d := NewDriver(p)
	t.Cleanup(func() {
		if err := d.Close(noClient); err != nil {
			t.Error(err)
		}
	})
	return d
}

// answering is driverOf a puppet without subscriptions, which it also returns.
func answering(t *testing.T, a answer) (*Driver, *puppet) {
	t.Helper()
	p := &puppet{answer: a, locate: wait.ErrNoSubscriptions}
	return driverOf(t, p), p
}

// wired is driverOf a puppet whose subscriptions are w.
func wired(t *testing.T, a answer) (d *Driver, w *wire) {
	t.Helper()
	w = &wire{events: make(chan wait.Event, 100), closed: make(chan struct{})}
	return driverOf(t, &puppet{answer: a, dial: func(context.Context) (wait.Subscription, error) { return w, nil }}), w
}

// noClient is that of a Driver whose client is another's.
func noClient() error { return nil }

// wire is a wait.Subscription that receives what the test puts on it.
type wire struct {
	events   chan wait.Event
	closed   chan struct{}
	once     sync.Once
	pings    atomic.Int32
	channels sync.Map
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

func (w *wire) Receive(time.Duration) (wait.Event, error) {
	select {
	case e := <-w.events:
		return e, nil
	case <-w.closed:
		return wait.Event{}, errors.New("the wire is closed")
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

// ownerOf and expiresOf return arguments of a claim's script, and dueOf when it is due, and its
// number, as the script reads it. All scripts of a claim begin alike.
func ownerOf(c script.Call) string { return c.Args[0].(string) }

func expiresOf(c script.Call) any { return c.Args[1] }

func dueOf(c script.Call) (by script.Due, number int64) {
	text := c.Args[2].(string)
	if _, err := fmt.Sscanf(text[16:32]+" "+text[32:], "%d %d/%d:", &by.Whole, &number, &by.Rest); err != nil {
		panic(err)
	}
	return by, number
}

// channelOf returns where a Driver's waiters for the lock x are told.
func channelOf(d *Driver) string {
	return script.Key("x") + ":" + strings.Trim(d.hub.Prefix()[1:], "/")
}

func nowMicro() int64 { return time.Now().UnixMicro() }

func heldReply(place int64) []any {
	return []any{int64(script.Held), int64(60000), nowMicro(), place, int64(0), int64(0), "other", "host 7"}
}

func grantedReply() []any { return []any{int64(script.Granted), nowMicro(), nowMicro(), int64(0)} }

// queued has a waiter ask for the lock x, and returns where its end will be told.
func queued(ctx context.Context, d *Driver, ttl time.Duration) <-chan error {
	return testwait.Go(func() error {
		_, err := claims.Wait(ctx, d, driver.Request{Name: "x", TTL: ttl}, func(error) {})
		return err
	})
}
