package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-locker/locker/internal/netfault"
)

// Certificates are PEM files of one self-signed certificate, made for one test: it is its own
// authority. Both a server at 127.0.0.1, alias localhost, and its clients show it.
type Certificates struct {
	CAFile, CertFile, KeyFile string

	config *tls.Config // of both sides; a server requires a certificate
}

// NewCertificates makes a certificate and its key.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	c := &Certificates{
		CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "cert.crt"), KeyFile: filepath.Join(dir, "cert.key"),
	}
	check(t, "certificates", c.make())
	return c
}

func (c *Certificates) make() error {
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testserver"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	for file, text := range map[string][]byte{c.CAFile: certPEM, c.CertFile: certPEM, c.KeyFile: keyPEM} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	c.config = &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ServerName:   "127.0.0.1", // tls.Client, unlike tls.Dial, does not take it from the address
		MinVersion:   tls.VersionTLS12,
	}
	return nil
}

// CopyFiles copies files into dir, and returns the names of the copies, which depend on the order
// alone: files that are copied later replace those.
func CopyFiles(t testing.TB, dir string, files ...string) (copies []string) {
	t.Helper()
	for i, file := range files {
		content, err := os.ReadFile(file)
		check(t, "copy", err)
		copies = append(copies, filepath.Join(dir, strconv.Itoa(i)+".pem"))
		check(t, "copy", os.WriteFile(copies[i], content, 0o600))
	}
	return copies
}

// TLSProxy stands before a server that does not speak TLS, and does. It asks clients for a
// certificate. It forwards connections to target, "host:port", until the test ends, and returns its
// own address. The test closes its clients.
func TLSProxy(t testing.TB, c *Certificates, target string) (addr string) {
	t.Helper()
	listener, err := tls.Listen("tcp4", loopback(0), c.config)
	check(t, "TLS proxy to "+target, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { forward(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// forward returns when both ends of a client's connection to target are closed.
func forward(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp4", target)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

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
	check(p.t, "the proxy cannot listen again", p.Proxy.Restore())
}
