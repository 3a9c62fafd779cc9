// Package adapterurl reads what the URLs of adapters have in common. Each function takes off the query
// what it reads.
package adapterurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

// Addrs returns the URL's hosts as host:port, with port where it names none; localhost if there is
// no host.
func Addrs(u *locker.URL, port string) []string {
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

// User returns the URL's user and password, empty if there is none.
func User(u *locker.URL) (name, password string) {
	if u.User == nil {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

// Duration sets d to the parameter called name, and leaves it alone if there is none.
func Duration(u *locker.URL, name string, d *time.Duration) error {
	value, ok := u.Take(name)
	if !ok {
		return nil
	}
	parsed, err := time.ParseDuration(value)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("parameter %s=%q is not a duration above 0, such as 500ms", name, value)
	}
	*d = parsed
	return nil
}

// Number is Duration for a whole number above 0.
func Number(u *locker.URL, name string, n *int) error {
	value, ok := u.Take(name)
	if !ok {
		return nil
	}
	parsed, err := strconv.Atoi(value)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("parameter %s=%q is not a number above 0", name, value)
	}
	*n = parsed
	return nil
}

// TLS makes a configuration of tls_ca, tls_cert, tls_key and tls_server_name. Without the last, the
// server's certificate has to be for serverName; if that is empty, for the host that is dialled.
func TLS(u *locker.URL, serverName string) (*tls.Config, error) {
	c := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}
	if name, ok := u.Take("tls_server_name"); ok {
		c.ServerName = name
	}
	if file, ok := u.Take("tls_ca"); ok {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("parameter tls_ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter tls_ca: no PEM certificate in %s", file)
		}
	}
	cert, hasCert := u.Take("tls_cert")
	key, hasKey := u.Take("tls_key")
	if hasCert != hasKey {
		return nil, errors.New("parameters tls_cert and tls_key go together")
	}
	if hasCert {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("parameters tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
