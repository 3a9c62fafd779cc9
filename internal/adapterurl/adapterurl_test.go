package adapterurl_test

import (
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/adapterurl"
	"github.com/go-locker/locker/internal/testserver"
)

// query is a URL with those parameters, given as name, value, name, value.
// query is a URL with those parameters, given as name, value, name, value.
func query(pairs ...string) *locker.URL {
	u := &locker.URL{Scheme: "redis", Query: url.Values{}}
	for i := 0; i < len(pairs); i += 2 {
		u.Query.Set(pairs[i], pairs[i+1])
	}
	return u
}

func TestAddrs(t *testing.T) {
	for _, c := range []struct {
		hosts, want []string
	}{
		{nil, []string{"localhost:6379"}},
		{[]string{"h"}, []string{"h:6379"}},
		{[]string{"h:7000"}, []string{"h:7000"}},
		{[]string{"[::1]"}, []string{"[::1]:6379"}},
		{[]string{"[::1]:7000"}, []string{"[::1]:7000"}},
		{[]string{"[fe80::1%eth0]:7000"}, []string{"[fe80::1%eth0]:7000"}},
		{[]string{"h1", "h2:7000", "[::1]"}, []string{"h1:6379", "h2:7000", "[::1]:6379"}},
	} {
		u := &locker.URL{Scheme: "redis", Hosts: c.hosts}
		assert.Equal(t, c.want, adapterurl.Addrs(u, "6379"))
	}
	assert.Equal(t, []string{"h:26379"}, adapterurl.Addrs(&locker.URL{Hosts: []string{"h"}}, "26379"))
	assert.Equal(t, "::1", adapterurl.Host("[::1]:6379"))
	assert.Equal(t, "h", adapterurl.Host("h:6379"))
}

func TestUser(t *testing.T) {
	for _, c := range []struct {
		user           *url.Userinfo
		name, password string
	}{
		{nil, "", ""},
		{url.User("u"), "u", ""},
		{url.UserPassword("", "p"), "", "p"},
		{url.UserPassword("u", "p:@/?"), "u", "p:@/?"},
	} {
		name, password := adapterurl.User(&locker.URL{User: c.user})
		assert.Equal(t, c.name, name)
		assert.Equal(t, c.password, password)
	}
}

func TestDuration(t *testing.T) {
	d := time.Minute
	require.NoError(t, adapterurl.Duration(query(), "d", &d))
	assert.Equal(t, time.Minute, d, "left alone")
	u := query("d", "20ms", "other", "1")
	require.NoError(t, adapterurl.Duration(u, "d", &d))
	assert.Equal(t, 20*time.Millisecond, d)
	assert.Equal(t, url.Values{"other": {"1"}}, u.Query, "taken off")
	for _, bad := range []string{"", "x", "5", "0s", "-1s"} {
		require.ErrorContains(t, adapterurl.Duration(query("d", bad), "d", &d), "d=")
		assert.Equal(t, 20*time.Millisecond, d)
	}
}

func TestNumber(t *testing.T) {
	n := 3
	require.NoError(t, adapterurl.Number(query(), "n", &n))
	assert.Equal(t, 3, n, "left alone")
	require.NoError(t, adapterurl.Number(query("n", "7"), "n", &n))
	assert.Equal(t, 7, n)
	for _, bad := range []string{"", "many", "0", "-1", "1.5"} {
		require.ErrorContains(t, adapterurl.Number(query("n", bad), "n", &n), "n=")
		assert.Equal(t, 7, n)
	}
}

func TestTLS_serverName(t *testing.T) {
	for _, c := range []struct {
		u          *locker.URL
		name, want string
	}{
		{query(), "h.example", "h.example"},
		{query(), "", ""},
		{query("tls_server_name", "other.example"), "h.example", "other.example"},
	} {
		config, err := adapterurl.TLS(c.u, c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, config.ServerName)
		assert.False(t, config.InsecureSkipVerify)
		assert.EqualValues(t, tls.VersionTLS12, config.MinVersion)
		assert.Empty(t, c.u.Query)
	}
}

func TestTLS_files(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisTLS())
	config, err := adapterurl.TLS(query("tls_ca", s.CAFile, "tls_cert", s.CertFile, "tls_key", s.KeyFile), "127.0.0.1")
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", s.Addr(), config)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	require.NoError(t, os.WriteFile(rubbish, []byte("rubbish"), 0o600))
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, c := range []struct {
		u    *locker.URL
		want string
	}{
		{query("tls_ca", rubbish), rubbish},
		{query("tls_ca", missing), missing},
		{query("tls_ca", ""), "tls_ca"},
		{query("tls_cert", s.CertFile), "go together"},
		{query("tls_key", s.KeyFile), "go together"},
		{query("tls_cert", missing, "tls_key", s.KeyFile), missing},
		{query("tls_cert", rubbish, "tls_key", s.KeyFile), "tls_cert"},
		{query("tls_cert", s.CertFile, "tls_key", rubbish), "tls_key"},
	} {
		_, err := adapterurl.TLS(c.u, "")
		require.ErrorContains(t, err, c.want)
	}
	_, err = adapterurl.TLS(query("tls_ca", missing), "")
	assert.ErrorIs(t, err, os.ErrNotExist)
}
