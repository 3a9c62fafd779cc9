package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/netfault"
)

// wire is the network between a party and the servers: a proxy for each.
type wire struct {
	env *env

	mu      sync.Mutex
	proxies map[string]*netfault.Proxy // by the server's address
}

// linked is a party with a network of its own.
func (e *env) linked(who, name string, ttl time.Duration) (*party, *wire) {
	w := &wire{env: e, proxies: map[string]*netfault.Proxy{}}
	l := e.h.Faults.Through(e, name, ttl, w.via)
	if l == nil {
		e.failf("Harness.Faults.Through returned nil")
	}
	return &party{env: e, who: who, name: name, ttl: ttl, l: l}, w
}

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
		w.proxies[address] = p
	}
	return p.Addr()
}

func (w *wire) each(do func(*netfault.Proxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proxies {
		do(p)
	}
}

// loseReplies has requests arrive, and what answers them be lost, until mend.
func (w *wire) loseReplies() { w.each(func(p *netfault.Proxy) { p.DropReplies(true) }) }

// hold keeps back what is sent, either way, until release, or until mend has it lost.
func (w *wire) hold() {
	w.each(func(p *netfault.Proxy) {
		p.HoldRequests(true)
		p.HoldReplies(true)
	})
}

// holdRequests keeps back what the party sends.
func (w *wire) holdRequests() { w.each(func(p *netfault.Proxy) { p.HoldRequests(true) }) }

// passNew keeps back nothing new, but for what follows on a connection that has something kept back.
func (w *wire) passNew() { w.each(func(p *netfault.Proxy) { p.HoldRequests(false) }) }

// held says whether a request is kept back.
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
	w.each(func(p *netfault.Proxy) {
		p.ReleaseRequests()
		p.ReleaseReplies()
	})
}

// delay has everything arrive later, each way.
func (w *wire) delay(d time.Duration) { w.each(func(p *netfault.Proxy) { p.Delay(d) }) }

// reset breaks all connections: what was on its way is lost, and new ones are made.
func (w *wire) reset() { w.each((*netfault.Proxy).ResetConns) }

// mend ends all faults. Connections that have lost something are broken.
func (w *wire) mend() {
	w.each(func(p *netfault.Proxy) {
		p.DropReplies(false)
		p.HoldRequests(false)
		p.HoldReplies(false)
		p.Delay(0)
		p.ResetConns()
	})
}

// attempt calls Lock and ends its ctx after a while, which is bound to fail it.
func (p *party) attempt(what string) {
	ctx, cancel := context.WithCancelCause(p.env.ctx)
	defer cancel(nil)
	stop := time.AfterFunc(settle, func() { cancel(errStop) })
	defer stop.Stop()
	start := time.Now()
	err := p.lock(ctx)
	switch {
	case err == nil:
		p.env.failf("%s's Lock succeeded, though %s", p.who, what)
	case errors.Is(err, locker.ErrHeld):
		p.env.failf("%s's Lock, when nobody had the lock and %s: %v; want no ErrHeld", p.who, what, err)
	case time.Since(start) > settle+p.env.prompt:
		p.env.doubtf("%s's Lock took %v though its ctx ended after %v", p.who, time.Since(start), settle)
	}
	if token := p.token(); token != 0 {
		p.env.failf("%s's token after a Lock that failed is %d; want 0", p.who, token)
	}
}

// lapsed is Lock of a lock that is free, or will be when something left behind has lapsed.
func (p *party) lapsed(what string) {
	start := time.Now()
	if err := p.lockWithin(p.ttl + slack(p.ttl)); err != nil {
		p.env.doubtf("%s, but %s's Lock failed after %v, with a TTL of %v: %v", what, p.who, time.Since(start), p.ttl, err)
	}
}
