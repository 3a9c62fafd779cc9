package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
)

// redisServers are clients of the servers on which the locks are. The adapters have read the URL before, and refused what is
// wrong with it.
func (d deployment) redisServers() ([]goredis.UniversalClient, error) {
	query, err := url.ParseQuery(strings.Join(d.params, "&"))
	if err != nil {
		return nil, errors.New("a parameter of the URL cannot be read")
	}
	o := goredis.UniversalOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MasterName:               query.Get("master_name"),
		SentinelUsername:         query.Get("sentinel_username"), SentinelPassword: query.Get("sentinel_password"),
	}
	name, password, _ := strings.Cut(strings.TrimSuffix(d.user, "@"), ":")
	o.Username, _ = url.PathUnescape(name)
	o.Password, _ = url.PathUnescape(password)
	o.IsClusterMode, _ = strconv.ParseBool(query.Get("cluster"))
	if o.DB, err = strconv.Atoi("0" + strings.TrimPrefix(d.path, "/")); err != nil {
		return nil, err
	}
	if d.secure() {
		if o.TLSConfig, err = tlsOf(query); err != nil {
			return nil, err
		}
	}
	port := "6379"
	if o.MasterName != "" {
		port = "26379"
	}
	o.Addrs = adapterurl.Addrs(&locker.URL{Hosts: d.hosts}, port)
	if socket := query.Get("socket"); socket != "" {
		o.Addrs = []string{socket} // which go-redis takes for one by its slash
	}
	if d.scheme != "redlock" {
		return []goredis.UniversalClient{goredis.NewUniversalClient(&o)}, nil
	}
	var nodes []goredis.UniversalClient
	for _, addr := range o.Addrs {
		one := o
		one.Addrs = []string{addr}
		nodes = append(nodes, goredis.NewUniversalClient(&one))
	}
	return nodes, nil
}

// tlsOf is what the parameters say of TLS.
func tlsOf(query url.Values) (*tls.Config, error) {
	c := &tls.Config{ServerName: query.Get("tls_server_name"), MinVersion: tls.VersionTLS12}
	c.InsecureSkipVerify, _ = strconv.ParseBool(query.Get("tls_skip_verify"))
	if file := query.Get("tls_ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(pem)
	}
	if file := query.Get("tls_cert"); file != "" {
		pair, err := tls.LoadX509KeyPair(file, query.Get("tls_key"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
