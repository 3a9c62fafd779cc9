//go:build unix

package natslock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	natslock "github.com/go-locker/locker/examples/nats"
)

func connect(t *testing.T, p *process) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(p.addr)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return nc, js
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLock_costsARequestToLookOneToTakeAndOneToRelease(t *testing.T) {
	nc, _ := connect(t, start(t))
	client, err := natslock.New(nc, "locks", locker.WithoutRenewal())
	must(t, err)
	must(t, client.Mutex("first").TryLock(t.Context())) // finds the bucket
	for i, want := range []uint64{4, 3} {               // the first time the name is made
		m, before := client.Mutex("orders"), nc.Stats().OutMsgs
		must(t, m.Lock(t.Context()))
		must(t, m.Unlock(t.Context()))
		if got := nc.Stats().OutMsgs - before; got != want {
			t.Errorf("Lock and Unlock, time %d: %d requests, want %d", i+1, got, want)
		}
	}
	must(t, client.Close())
	if nc.IsClosed() {
		t.Error("Close has closed the caller's connection")
	}
}

// The suite accepts ErrLost here: the reply to a Release was lost, and another has the lock
// already. The second hold was extended before that, and has the token of its grant.
func TestClaim_askedAndReleasedAgain(t *testing.T) {
	nc, _ := connect(t, start(t))
	d := natslock.NewDriver(nc, "locks")
	var claims []driver.Claim
	for range 2 {
		c := d.Claim(driver.Request{Name: "locker:orders", TTL: time.Minute})
		claims = append(claims, c)
		for range 2 { // as if the first reply was lost
			_, err := c.Ask(t.Context())
			must(t, err)
		}
		if len(claims) == 1 {
			must(t, c.Release(t.Context()))
		}
	}
	must(t, claims[1].Extend(t.Context(), time.Minute))
	must(t, claims[0].Release(t.Context()))
	state, err := d.Inspect(t.Context(), "locker:orders")
	must(t, err)
	if state.Token != claims[1].Token() {
		t.Errorf("the token of the hold is %d, want %d", state.Token, claims[1].Token())
	}
	must(t, d.ForceRelease(t.Context(), "locker:orders", state))
	if err := claims[1].Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the Release of a hold that was forced: %v, want ErrLost", err)
	}
}

// The place would end by itself, which is all that the suite wants.
func TestRelease_givesUpThePlace(t *testing.T) {
	nc, _ := connect(t, start(t))
	d := natslock.NewDriver(nc, "locks")
	ask := func() (driver.Claim, error) {
		c := d.Claim(driver.Request{Name: "locker:orders", TTL: time.Minute, Wake: func() {}})
		_, err := c.Ask(t.Context())
		return c, err
	}
	_, err := ask()
	must(t, err)
	waiter, err := ask()
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("a second Ask: %v, want ErrHeld", err)
	}
	for want := 1; want >= 0; want-- {
		state, err := d.Inspect(t.Context(), "locker:orders")
		must(t, err)
		if len(state.Waiters) != want {
			t.Errorf("%d wait, want %d", len(state.Waiters), want)
		}
		must(t, waiter.Release(t.Context()))
	}
}

// Records of free locks go after an hour, and tokens must not begin again.
func TestToken_risesThoughTheServerStartsWithAnEmptyBucket(t *testing.T) {
	p := start(t)
	lock := func() uint64 {
		m := open(t, p.addr).Mutex("orders")
		must(t, m.Lock(t.Context()))
		defer func() { must(t, m.Unlock(t.Context())) }()
		return m.FencingToken()
	}
	before := lock()
	_, js := connect(t, p)
	stream, err := js.Stream(t.Context(), "KV_locks")
	must(t, err)
	must(t, stream.Purge(t.Context()))
	p.kill()
	p.run(t)
	if after := lock(); after <= before {
		t.Errorf("the token %d came after %d", after, before)
	}
}

func TestTryLock_refusesABucketThatWouldWakeNobody(t *testing.T) {
	nc, js := connect(t, start(t))
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "locks", LimitMarkerTTL: time.Second})
	must(t, err)
	client, err := natslock.New(nc, "locks")
	must(t, err)
	if err := client.Mutex("orders").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "republish") {
		t.Errorf("TryLock: %v, want what the bucket lacks", err)
	}
	must(t, client.Close())
}

func TestOpen_refuses(t *testing.T) {
	for url, want := range map[string]string{
		"nats://":                     "host",
		"nats://h/path":               "path",
		"nats://h?bucket=a.b":         "bucket",
		"nats://h?replicas=many":      "replicas",
		"nats://h?ttl=1500ms":         "whole seconds",
		"nats://u:secret@h?colour=on": "colour",
	} {
		_, err := locker.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error about %s", url, err, want)
		}
	}
}
