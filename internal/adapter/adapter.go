// Package adapter has what adapters share: how they make Drivers and Clients, and how they read
// URLs. A function that reads a parameter of a URL takes it off the query.
package adapter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// Refuse returns the error of a NewDriver that fails because of why.
func Refuse(why error) error { return &driver.Error{Op: "new", Err: why} }

// Apply applies opts to to. It fails for a nil option, and for one that is not valid.
func Apply[To any, Option ~func(To) error](to To, opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			return Refuse(errors.New("nil DriverOption"))
		}
		if err := opt(to); err != nil {
			return Refuse(err)
		}
	}
	return nil
}

// Client makes a Client over d, which an adapter's New has made. If an option is refused, it closes
// d and returns the error.
func Client(d driver.Driver, opts ...locker.Option) (*locker.Client, error) {
	c, err := locker.New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return c, nil
}

// Addrs returns the URL's hosts as host:port, with port where it names none; localhost if there is
// no host.
func Addrs(u *driver.URL, port string) []string {
	if len(u.Hosts) == 0 {
		return []string{net.JoinHostPort("localhost", port)}
	}
	addrs := make([]string, len(u.Hosts))
	for i, host := range u.Hosts {
		if _, _, err := net.SplitHostPort(host); err == nil {
			addrs[i] = host
		} else {
			addrs[i] = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
	}
	return addrs
}

// Host returns the host of an address that Addrs has returned, for the name of a certificate.
func Host(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// User returns the URL's user and password, empty if there is none. A name without a password is an
// error, for the client libraries would go in without either; so is a password without a name
// unless that is nameless.
func User(u *driver.URL, nameless bool) (name, password string, err error) {
	if u.User == nil {
		return "", "", nil
	}
	name = u.User.Username()
	password, _ = u.User.Password()
	switch { // without the name: it may be a password in the wrong place
	case name != "" && password == "":
		return "", "", errors.New("a user goes with a password, as in user:password@host")
	case name == "" && password != "" && !nameless:
		return "", "", errors.New("a password goes with a user, as in user:password@host")
	}
	return name, password, nil
}

// No operator means more; sums and products of them, and what client libraries allocate, stay sane.
const (
	longest = 24 * time.Hour
	most    = 1<<16 - 1
)

// Duration sets d to the parameter called name, and leaves it alone if there is none.
func Duration(u *driver.URL, name string, d *time.Duration) error {
	return take(u, name, d, fmt.Sprintf("a duration above 0, such as 500ms, and of %v at most", longest), time.ParseDuration,
		func(d time.Duration) bool { return d > 0 && d <= longest })
}

// Number sets n to a whole number from 1 to 65535, as Duration does.
func Number(u *driver.URL, name string, n *int) error {
	return take(u, name, n, fmt.Sprintf("a number from 1 to %d", most), strconv.Atoi, func(n int) bool { return n > 0 && n <= most })
}

// Bool sets b to true or false, as Duration does.
func Bool(u *driver.URL, name string, b *bool) error {
	return take(u, name, b, "true or false", strconv.ParseBool, func(bool) bool { return true })
}

// take sets v to the parameter called name, which has to be what want says.
func take[T any](u *driver.URL, name string, v *T, want string, parse func(string) (T, error), valid func(T) bool) error {
	value, ok := u.Take(name)
	if !ok {
		return nil
	}
	parsed, err := parse(value)
	if err != nil || !valid(parsed) {
		return fmt.Errorf("parameter %s=%q is not %s", name, value, want)
	}
	*v = parsed
	return nil
}

// The parameters of TLS.
const (
	tlsCA         = "tls_ca"
	tlsCert       = "tls_cert"
	tlsKey        = "tls_key"
	tlsServerName = "tls_server_name"
	tlsSkipVerify = "tls_skip_verify"
)

// TLSConfig is how a URL has servers reached. Its Config has what the files had when TLS read them;
// Current is for connections.
type TLSConfig struct {
	*tls.Config

	authorities func(context.Context) *x509.CertPool // nil: the system's, or none
}

// Current returns the configuration of one connection: with what the files have by now, which may
// have been replaced because a certificate ends.
func (c *TLSConfig) Current(ctx context.Context) *tls.Config {
	current := c.Clone()
	if c.authorities != nil {
		current.RootCAs = c.authorities(ctx)
	}
	return current
}

// TLS makes a configuration of the parameters of a URL whose scheme is secure, plain and an s. It
// is nil if the scheme is plain, which has none of them. Without tls_server_name the server's
// certificate has to be for serverName; if that is empty, for the host that is dialled. Files are
// read while ctx lasts, and anew for each connection.
func TLS(ctx context.Context, u *driver.URL, plain, serverName string) (*TLSConfig, error) {
	if u.Scheme == plain {
		for _, name := range []string{tlsCA, tlsCert, tlsKey, tlsServerName, tlsSkipVerify} {
			if u.Query.Has(name) {
				return nil, fmt.Errorf("parameter %s goes with %ss://, and this is %s://", name, plain, plain)
			}
		}
		return nil, nil
	}
	c := &TLSConfig{Config: &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}}
	if name, ok := u.Take(tlsServerName); ok {
		if name == "" {
			return nil, fmt.Errorf("parameter %s is empty", tlsServerName)
		}
		c.ServerName = name
	}
	return c, errors.Join(authority(ctx, u, c), certificate(ctx, u, c))
}

// TLSDialer returns what dials with TLS. If a server takes the connection and does not answer the
// handshake, the error says so: one that speaks no TLS waits for more.
func TLSDialer(tcp *net.Dialer, c *TLSConfig) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&tls.Dialer{NetDialer: tcp, Config: c.Current(ctx)}).DialContext(ctx, network, addr)
		if err == nil {
			return conn, nil
		}
		if _, ok := errors.AsType[*net.OpError](err); !ok && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the TLS handshake with %s was not answered (is it a port for TLS?): %w", addr, err)
		}
		return nil, err
	}
}

// authority says whom to believe that a server is the one that was dialled.
func authority(ctx context.Context, u *driver.URL, c *TLSConfig) error {
	if err := Bool(u, tlsSkipVerify, &c.InsecureSkipVerify); err != nil {
		return err
	}
	file, ok := u.Take(tlsCA)
	if !ok {
		return nil
	}
	if c.InsecureSkipVerify {
		return fmt.Errorf("parameters %s and %s=true exclude each other", tlsCA, tlsSkipVerify)
	}
	var err error
	c.RootCAs, c.authorities, err = latest(ctx, func(ctx context.Context) (*x509.CertPool, error) {
		pem, err := readFile(ctx, tlsCA, file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter %s: no PEM certificate in %s", tlsCA, file)
		}
		return pool, nil
	})
	return err
}

// certificate reads what the client shows of itself.
func certificate(ctx context.Context, u *driver.URL, c *TLSConfig) error {
	certFile, hasCert := u.Take(tlsCert)
	keyFile, hasKey := u.Take(tlsKey)
	if hasCert != hasKey {
		return fmt.Errorf("parameters %s and %s go together", tlsCert, tlsKey)
	}
	if !hasCert {
		return nil
	}
	_, pair, err := latest(ctx, func(ctx context.Context) (*tls.Certificate, error) {
		cert, err := readFile(ctx, tlsCert, certFile)
		if err != nil {
			return nil, err
		}
		key, err := readFile(ctx, tlsKey, keyFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("parameters %s and %s: %w", tlsCert, tlsKey, err)
		}
		return &pair, nil
	})
	c.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert := pair(asked.Context())
		if err := asked.SupportsCertificate(cert); err != nil {
			cert = new(tls.Certificate) // none, as with Certificates
		}
		return cert, nil
	}
	return err
}

// latest reads files, and returns what reads them anew. While that fails, as between the writes of
// a certificate and of its key, or takes more than a second, it returns what it has read last.
func latest[T any](ctx context.Context, read func(context.Context) (*T, error)) (*T, func(context.Context) *T, error) {
	first, err := read(ctx)
	var last atomic.Pointer[T]
	last.Store(first)
	return first, func(ctx context.Context) *T {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if now, err := read(ctx); err == nil {
			last.Store(now)
		}
		return last.Load()
	}, err
}
