package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-locker/locker/internal/netfault"
)

// certificates are files in the PEM format: an authority made for one test, and what it signed.
type certificates struct {
	ca, serverCert, serverKey, clientCert, clientKey string

	clientConfig *tls.Config
}

// writeCertificates makes an authority and has it sign a certificate for a server at 127.0.0.1,
// alias localhost, and one for a client. The authority's key is forgotten.
func writeCertificates(dir string) (*certificates, error) {
	c := &certificates{
		ca:         filepath.Join(dir, "ca.crt"),
		serverCert: filepath.Join(dir, "server.crt"),
		serverKey:  filepath.Join(dir, "server.key"),
		clientCert: filepath.Join(dir, "client.crt"),
		clientKey:  filepath.Join(dir, "client.key"),
	}
	caKey, err := newKey()
	if err != nil {
		return nil, err
	}
	ca := template(1, "testserver authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	if err := sign(c.ca, ca, ca, caKey, caKey); err != nil {
		return nil, err
	}

	server := template(2, "testserver server")
	server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if err := issue(c.serverCert, c.serverKey, server, ca, caKey); err != nil {
		return nil, err
	}
	client := template(3, "testserver client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if err := issue(c.clientCert, c.clientKey, client, ca, caKey); err != nil {
		return nil, err
	}
	c.clientConfig, err = clientConfig(c)
	return c, err
}

func clientConfig(c *certificates) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.clientCert, c.clientKey)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ServerName:   "127.0.0.1", // tls.Client, unlike tls.Dial, does not take it from the address
		MinVersion:   tls.VersionTLS12,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// issue writes a new key, and a certificate for it that the authority signs.
func issue(certFile, keyFile string, cert, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", der); err != nil {
		return err
	}
	return sign(certFile, cert, ca, key, caKey)
}

func sign(file string, cert, ca *x509.Certificate, key, caKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	return writePEM(file, "CERTIFICATE", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// CopyFiles copies files into dir, and returns the names of the copies, which depend on the order
// alone: files that are copied later replace those.
func CopyFiles(t testing.TB, dir string, files ...string) (copies []string) {
	t.Helper()
	for i, file := range files {
		content, err := os.ReadFile(file)
		if err == nil {
			copies = append(copies, filepath.Join(dir, strconv.Itoa(i)+".pem"))
			err = os.WriteFile(copies[i], content, 0o600)
		}
		if err != nil {
			t.Fatalf("testserver: copy %s: %v", file, err)
		}
	}
	return copies
}

// TLSProxy stands before a server that does not speak TLS, and does. It asks clients for a certificate.
type TLSProxy struct {
	CAFile, CertFile, KeyFile string // of the authority of all, and of a client

	gate *gate
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
	listen := func(network, addr string) (net.Listener, error) { return tls.Listen(network, addr, config) }
	return &TLSProxy{
		CAFile: files.ca, CertFile: files.clientCert, KeyFile: files.clientKey,
		gate: openGate(t, "TLS proxy to "+target, listen, func(g *gate, client net.Conn) {
			if server, err := g.dial(target); err == nil {
				defer g.drop(server)
				g.join(client, server)
			}
		}),
	}
}

// Addr returns the "127.0.0.1:port" for clients.
func (p *TLSProxy) Addr() string { return p.gate.addr }

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
