package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
)

func init() {
	locker.Register("redis", open)
	locker.Register("rediss", open)
}

// open makes a go-redis client of its own of a URL as the package's documentation has it.
func open(_ context.Context, u *locker.URL) (locker.Driver, error) {
	o := &goredis.Options{
		ContextTimeoutEnabled: true,
		// One refused connection is an answer; the command's own retries are enough.
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	host, err := address(u, o)
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	if err := pool(u, o); err != nil {
		return nil, err
	}
	if u.Scheme == "rediss" {
		if o.TLSConfig, err = tlsConfig(u, host); err != nil {
			return nil, err
		}
	}
	rdb := goredis.NewClient(o)
	d, err := NewDriver(rdb)
	if err != nil {
		return nil, err
	}
	d.owned = true
	return d, nil
}

// address sets where to connect, and returns the host's name.
func address(u *locker.URL, o *goredis.Options) (host string, err error) {
	host, port := "localhost", "6379"
	switch len(u.Hosts) {
	case 0:
	case 1:
		host = strings.Trim(u.Hosts[0], "[]")
		if h, p, err := net.SplitHostPort(u.Hosts[0]); err == nil {
			host, port = h, p
		}
	default:
		return "", fmt.Errorf("%s:// takes one host, and the URL has %d", u.Scheme, len(u.Hosts))
	}
	o.Addr = net.JoinHostPort(host, port)
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		n, err := strconv.ParseUint(db, 10, 16)
		if err != nil {
			return "", fmt.Errorf("path %q is not a database number, as in %s://%s/0", u.Path, u.Scheme, host)
		}
		o.DB = int(n)
	}
	return host, nil
}

func pool(u *locker.URL, o *goredis.Options) error {
	for name, field := range map[string]*time.Duration{
		"dial_timeout":  &o.DialTimeout,
		"read_timeout":  &o.ReadTimeout,
		"write_timeout": &o.WriteTimeout,
	} {
		value, ok := u.Take(name)
		if !ok {
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("parameter %s=%q is not a duration above 0, such as 500ms", name, value)
		}
		*field = d
	}
	if value, ok := u.Take("pool_size"); ok {
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 {
			return fmt.Errorf("parameter pool_size=%q is not a number above 0", value)
		}
		o.PoolSize = n
	}
	return nil
}

func tlsConfig(u *locker.URL, host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
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
