package fault

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/netfault"
)

// HoldLast holds back the last requests of an operation that sends the given number of them (last
// 0: all), and all requests after it.
func (w *Wire) HoldLast(last, sent int) {
	if last == 0 {
		w.HoldRequests()
		return
	}
	w.PassFirst(sent - last)
}

// Wire is the network between a party and the servers: one proxy for each server.
type Wire struct {
	Env *party.Env

	mu      sync.Mutex
	proxies map[string]*netfault.Proxy // by the server's address
	rule    func(*netfault.Proxy)      // current rule, also for new proxies; nil: none
}

// Link makes a party with its own Wire, without checking that its requests pass it.
func Link(e *party.Env, who, name string, ttl time.Duration) (*party.Party, *Wire) {
	w := newWire(e)
	l := e.Harness.Faults.Through(party.Making{Env: e}, name, ttl, w.via)
	if l == nil {
		e.Failf("Harness.Faults.Through returned nil")
	}
	return e.Using(asReader(e, who, "Faults.Through", l), who, name, ttl), w
}

// LinkedClient makes parties that share one client with its own Wire.
func LinkedClient(e *party.Env, ttl time.Duration, renew bool) (func(who, name string) *party.Party, *Wire) {
	w := newWire(e)
	return e.Of("Faults.ThroughClient", ttl, e.Harness.Faults.ThroughClient(party.Making{Env: e}, ttl, renew, w.via)), w
}

// Takes has a party of LinkedClient take a free lock, and checks that its requests passed w.
func (w *Wire) Takes(p *party.Party) {
	p.Take()
	if w.Requests() == 0 {
		w.Env.Relies(engine.Idle("ThroughClient", "a Locker was locked, and nothing passed the suite's proxies"))
	}
}

func newWire(e *party.Env) *Wire { return &Wire{Env: e, proxies: map[string]*netfault.Proxy{}} }

// via returns the address of the proxy to a server. The harness calls it.
func (w *Wire) via(address string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proxies[address]
	if p == nil {
		var err error
		if p, err = netfault.Start("127.0.0.1:0", address); err != nil {
			w.Env.Fatalf("a proxy to %s: %v", address, err)
		}
		w.Env.Cleanup(p.Close)
		if w.rule != nil {
			w.rule(p)
		}
		w.proxies[address] = p
	}
	return p.Addr()
}

// Addresses returns the addresses of the servers that via was called with.
func (w *Wire) Addresses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.proxies))
}

// impose applies rule to all proxies, also to new ones, until the next call. Nil: no rule.
func (w *Wire) impose(rule func(*netfault.Proxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = rule
	for _, p := range w.proxies {
		if rule != nil {
			rule(p)
		}
	}
}

func (w *Wire) each(do func(*netfault.Proxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proxies {
		do(p)
	}
}

// LoseReplies delivers requests and drops their replies, until Mend.
func (w *Wire) LoseReplies() { w.impose(func(p *netfault.Proxy) { p.DropReplies(true) }) }

// Hold holds back requests and replies. Release delivers them, Mend drops them.
func (w *Wire) Hold() {
	w.impose(func(p *netfault.Proxy) {
		p.HoldRequests(true)
		p.HoldReplies(true)
	})
}

// HoldRequests holds back the party's requests.
func (w *Wire) HoldRequests() { w.impose(func(p *netfault.Proxy) { p.HoldRequests(true) }) }

// PassFirst lets n requests pass, and holds back all later ones.
func (w *Wire) PassFirst(n int) {
	left := new(atomic.Int64)
	left.Store(int64(n))
	w.impose(func(p *netfault.Proxy) { p.HoldRequestsAfter(left) })
}

// PassNew lets new requests pass, except on connections that already hold one back.
func (w *Wire) PassNew() {
	w.impose(nil)
	w.each(func(p *netfault.Proxy) {
		p.HoldRequests(false)
		p.HoldRequestsAfter(nil)
	})
}

// Seal drops what the party sends from now on behind a held request, on the same connection.
func (w *Wire) Seal() { w.each((*netfault.Proxy).SealHeld) }

// Abandon closes the party's end of connections with held requests, so that it makes new ones. The
// server's end stays open.
func (w *Wire) Abandon() { w.each((*netfault.Proxy).AbandonHeld) }

// Requests returns how many requests the party has sent.
func (w *Wire) Requests() int {
	total := 0
	w.each(func(p *netfault.Proxy) { total += p.Requests() })
	return total
}

// Held reports whether a request is held back.
func (w *Wire) Held() bool {
	total := 0
	w.each(func(p *netfault.Proxy) {
		requests, _ := p.Held()
		total += requests
	})
	return total > 0
}

// AwaitHeld waits, for a while, until a request is held back, and reports whether one is.
func (w *Wire) AwaitHeld() bool {
	for end := time.Now().Add(w.Env.Prompt); !w.Held() && time.Now().Before(end) && w.Env.Context().Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	return w.Held()
}

// Release delivers all held requests and replies.
func (w *Wire) Release() {
	w.impose(nil)
	w.each(func(p *netfault.Proxy) {
		p.ReleaseRequests()
		p.ReleaseReplies()
	})
}

// Delay delays all traffic by d, each way.
func (w *Wire) Delay(d time.Duration) { w.impose(func(p *netfault.Proxy) { p.Delay(d) }) }

// Reset breaks all connections: data in flight are lost, and the party may reconnect.
func (w *Wire) Reset() { w.each((*netfault.Proxy).ResetConns) }

// Refuse refuses new connections. Open connections keep working.
func (w *Wire) Refuse() { w.impose((*netfault.Proxy).Refuse) }

// Hush drops all further traffic on open connections. New connections work.
func (w *Wire) Hush() { w.each((*netfault.Proxy).HushConns) }

// Sever cuts the party off from one of the servers, until mend is called.
func (w *Wire) Sever(address string) (mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proxies[address]
	p.Sever()
	return func() {
		if err := p.Restore(); err != nil {
			w.Env.Fatalf("a proxy to %s: %v", address, err)
		}
	}
}

// Mend ends all faults except Refuse and Sever, and breaks all connections.
func (w *Wire) Mend() {
	w.impose(nil)
	w.each(func(p *netfault.Proxy) {
		p.DropReplies(false)
		p.HoldRequests(false)
		p.HoldRequestsAfter(nil)
		p.HoldReplies(false)
		p.Delay(0)
		p.ResetConns()
	})
}

// asReader returns l, which field of the Harness returned, or, if who is the scenario's reader, a
// Locker that takes shares of l.
func asReader(e *party.Env, who, field string, l locker.Locker) locker.Locker {
	if who != e.Reader {
		return l
	}
	rw, ok := l.(power.Sharer)
	if !ok {
		e.Skip("what " + field + " returns is no RWLocker")
	}
	return power.Sharing{Sharer: rw}
}
