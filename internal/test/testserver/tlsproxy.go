package testserver

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
)

// TLSProxy stands before a server that does not speak TLS, and does. It asks clients for a certificate.
type TLSProxy struct {
	CAFile, CertFile, KeyFile string // of the authority of all, and of a client

	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// NewTLSProxy starts to forward connections to target, "host:port". It stops when the test ends.
func NewTLSProxy(t testing.TB, target string) *TLSProxy {
	t.Helper()
	files, err := writeCertificates(t.TempDir())
	if err != nil {
		t.Fatalf("testserver: certificates: %v", err)
	}
	config := files.clientConfig.Clone()
	config.ClientCAs, config.ClientAuth = config.RootCAs, tls.RequireAndVerifyClientCert
	pair, err := tls.LoadX509KeyPair(files.serverCert, files.serverKey)
	if err != nil {
		t.Fatalf("testserver: certificates: %v", err)
	}
	config.Certificates = []tls.Certificate{pair}
	p := &TLSProxy{CAFile: files.ca, CertFile: files.clientCert, KeyFile: files.clientKey, target: target}
	withPort(t, "TLS proxy to "+target, func(port int) (err error) {
		p.listener, err = tls.Listen("tcp", loopback(port), config)
		return err
	})
	p.running.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Addr returns the "127.0.0.1:port" for clients.
func (p *TLSProxy) Addr() string { return p.listener.Addr().String() }

func (p *TLSProxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.forward(client, server)
	}
}

func (p *TLSProxy) forward(client, server net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_, _ = client.Close(), server.Close()
		return
	}
	p.conns = append(p.conns, client, server)
	p.running.Go(func() { forward(server, client) })
	p.running.Go(func() { forward(client, server) })
}

// forward ends both when the one that it reads from has ended.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

func (p *TLSProxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
