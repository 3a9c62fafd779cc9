package conformance

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/netfault"
)

// wire is the network between a party and the servers: a proxy for each.
type wire struct {
	env *env

	mu      sync.Mutex
	proxies map[string]*netfault.Proxy // by the server's address
	rule    func(*netfault.Proxy)      // what befalls them now, for those that are made meanwhile; or nil
}

// link is linked, and asks nothing.
func (e *env) link(who, name string, ttl time.Duration) (*party, *wire) {
	w := e.wire()
	l := e.h.Faults.Through(e, name, ttl, w.via)
	if l == nil {
		e.failf("Harness.Faults.Through returned nil")
	}
	return e.using(e.asReader(who, "Faults.Through", l), who, name, ttl), w
}

// linkedClient makes parties that share one client with a network of its own.
func (e *env) linkedClient(ttl time.Duration, renew bool) (func(who, name string) *party, *wire) {
	w := e.wire()
	return e.of("Faults.ThroughClient", ttl, e.h.Faults.ThroughClient(e, ttl, renew, w.via)), w
}

// takes has a party of linkedClient lock what is free, on this network.
func (w *wire) takes(p *party) {
	p.take()
	if w.requests() == 0 {
		w.env.relies(engine.Idle("ThroughClient", "a Locker was locked, and nothing passed the suite's proxies"))
	}
}

func (e *env) wire() *wire { return &wire{env: e, proxies: map[string]*netfault.Proxy{}} }

// via is given to the harness.
func (w *wire) via(address string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proxies[address]
	if p == nil {
		var err error
		if p, err = netfault.Start("127.0.0.1:0", address); err != nil {
			w.env.Fatalf("a proxy to %s: %v", address, err)
		}
		w.env.Cleanup(p.Close)
		if w.rule != nil {
			w.rule(p)
		}
		w.proxies[address] = p
	}
	return p.Addr()
}

// addresses are those of the servers that via was called with.
func (w *wire) addresses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.proxies))
}

// impose has something befall all proxies, those that are yet to be made too, until another rule is imposed. Nil is none.
func (w *wire) impose(rule func(*netfault.Proxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = rule
	for _, p := range w.proxies {
		if rule != nil {
			rule(p)
		}
	}
}

func (w *wire) each(do func(*netfault.Proxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proxies {
		do(p)
	}
}

// loseReplies has requests arrive, and what answers them be lost, until mend.
func (w *wire) loseReplies() { w.impose(func(p *netfault.Proxy) { p.DropReplies(true) }) }

// hold keeps back what is sent, either way, until release, or until mend has it lost.
func (w *wire) hold() {
	w.impose(func(p *netfault.Proxy) {
		p.HoldRequests(true)
		p.HoldReplies(true)
	})
}

// holdRequests keeps back what the party sends.
func (w *wire) holdRequests() { w.impose(func(p *netfault.Proxy) { p.HoldRequests(true) }) }

// passFirst lets so many requests pass, and keeps back those that follow.
func (w *wire) passFirst(n int) {
	left := new(atomic.Int64)
	left.Store(int64(n))
	w.impose(func(p *netfault.Proxy) { p.HoldRequestsAfter(left) })
}

// passNew keeps back nothing new, but for what follows on a connection that has something kept back.
func (w *wire) passNew() {
	w.impose(nil)
	w.each(func(p *netfault.Proxy) {
		p.HoldRequests(false)
		p.HoldRequestsAfter(nil)
	})
}

// seal loses what the party sends from now on behind something that is kept back.
func (w *wire) seal() { w.each((*netfault.Proxy).SealHeld) }

// abandon breaks connections that have something kept back, so that the party makes new ones. The server learns it later.
func (w *wire) abandon() { w.each((*netfault.Proxy).AbandonHeld) }

// requests returns how many requests the party has sent.
func (w *wire) requests() int {
	total := 0
	w.each(func(p *netfault.Proxy) { total += p.Requests() })
	return total
}

// held reports whether a request is kept back.
func (w *wire) held() bool {
	total := 0
	w.each(func(p *netfault.Proxy) {
		requests, _ := p.Held()
		total += requests
	})
	return total > 0
}

// release delivers what was kept back, late.
func (w *wire) release() {
	w.impose(nil)
	w.each(func(p *netfault.Proxy) {
		p.ReleaseRequests()
		p.ReleaseReplies()
	})
}

// delay has everything arrive later, each way.
func (w *wire) delay(d time.Duration) { w.impose(func(p *netfault.Proxy) { p.Delay(d) }) }

// reset breaks all connections: what was on its way is lost, and new ones are made.
func (w *wire) reset() { w.each((*netfault.Proxy).ResetConns) }

// refuse has no new connection be made. Those that are open go on.
func (w *wire) refuse() { w.impose((*netfault.Proxy).Refuse) }

// hush loses all that is sent on open connections from now on. New ones work.
func (w *wire) hush() { w.each((*netfault.Proxy).HushConns) }

// sever keeps the party from one of the servers.
func (w *wire) sever(address string) (mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proxies[address]
	p.Sever()
	return func() {
		if err := p.Restore(); err != nil {
			w.env.Fatalf("a proxy to %s: %v", address, err)
		}
	}
}

// mend ends all faults. Connections that have lost something are broken.
func (w *wire) mend() {
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

// asReader has the reader of the scenario take shares of l, which field of the Harness has
// returned. It returns l for all others.
func (e *env) asReader(who, field string, l locker.Locker) locker.Locker {
	if who != e.reader {
		return l
	}
	rw, ok := l.(RWLocker)
	if !ok {
		e.skip("what " + field + " returns is no RWLocker")
	}
	return power.Sharing{Sharer: rw}
}
