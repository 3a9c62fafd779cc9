package testserver

import (
	"testing"

	"github.com/go-locker/locker/internal/netfault"
)

// Proxy stands between clients and a server and makes the network between them fail. Its faults may
// be switched on and off while connections are open, and, but for Restore, from any goroutine.
type Proxy struct {
	*netfault.Proxy
	t testing.TB
}

// NewProxy starts to forward connections to target, "host:port". It stops when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t}
	withPort(t, "proxy to "+target, func(port int) (err error) {
		p.Proxy, err = netfault.Start(loopback(port), target)
		return err
	})
	t.Cleanup(p.Close)
	return p
}

// Restore accepts connections again after Sever or Refuse. Other faults stay as they are.
func (p *Proxy) Restore() {
	p.t.Helper()
	if err := p.Proxy.Restore(); err != nil {
		p.t.Fatalf("testserver: proxy cannot listen again: %v", err)
	}
}
