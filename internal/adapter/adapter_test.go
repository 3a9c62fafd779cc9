package adapter_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy is a Driver with a goroutine that Close ends.
type busy struct {
	driver.Driver
	close, closed chan struct{}
}

func newBusy() *busy {
	d := &busy{memory.NewDriver(), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(d.closed)
		<-d.close
	}()
	return d
}

func (d *busy) Close() error {
	close(d.close)
	<-d.closed
	return d.Driver.Close()
}

func TestClient_closesADriverThatNobodyGets(t *testing.T) {
	for name, refused := range map[string]locker.Option{
		"not valid": locker.Require("world peace"), "not promised": locker.Require(locker.FencingDurable), "nil": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := adapter.Client(newBusy(), refused)
			require.Error(t, err)
			assert.Nil(t, c)
			goleak.VerifyNone(t)
		})
	}
	c, err := adapter.Client(newBusy(), locker.Require(locker.Fencing))
	require.NoError(t, err)
	require.NoError(t, c.Mutex(t.Name()).TryLock(t.Context()), "the Driver is open")
	require.NoError(t, c.Close())
}

// query is a URL with those parameters, given as name, value, name, value.
func query(pairs ...string) *driver.URL {
	u := &driver.URL{Scheme: "rediss", Query: url.Values{}}
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
		u := &driver.URL{Scheme: "redis", Hosts: c.hosts}
		assert.Equal(t, c.want, adapter.Addrs(u, "6379"))
	}
	assert.Equal(t, []string{"h:26379"}, adapter.Addrs(&driver.URL{Hosts: []string{"h"}}, "26379"))
	assert.Equal(t, "::1", adapter.Host("[::1]:6379"))
	assert.Equal(t, "h", adapter.Host("h:6379"))
}

func TestUser(t *testing.T) {
	for _, c := range []struct {
		user           *url.Userinfo
		nameless       bool
		name, password string
	}{
		{nil, false, "", ""},
		{url.UserPassword("", ""), false, "", ""},
		{url.UserPassword("", "p"), true, "", "p"},
		{url.UserPassword("u", "p:@/?"), false, "u", "p:@/?"},
	} {
		name, password, err := adapter.User(&driver.URL{User: c.user}, c.nameless)
		require.NoError(t, err)
		assert.Equal(t, c.name, name)
		assert.Equal(t, c.password, password)
	}
	for want, user := range map[string]*url.Userinfo{
		"a user goes with a password": url.User("s3cret"), "a password goes with a user": url.UserPassword("", "s3cret"),
	} {
		_, _, err := adapter.User(&driver.URL{User: user}, false)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	_, _, err := adapter.User(&driver.URL{User: url.UserPassword("u", "")}, true)
	require.ErrorContains(t, err, "a user goes with a password")
}

func TestParameters(t *testing.T) {
	parameter(t, adapter.Duration, time.Minute, "20ms", 20*time.Millisecond, "", "x", "5", "0s", "-1s", "24h1s", "2562047h")
	parameter(t, adapter.Number, 3, "7", 7, "", "many", "0", "-1", "1.5", "65536", "99999999999999999999")
	parameter(t, adapter.Bool, true, "false", false, "", "maybe", "yes")
}

func parameter[T any](t *testing.T, take func(*driver.URL, string, *T) error, before T, good string, after T, bad ...string) {
	t.Helper()
	v := before
	require.NoError(t, take(query(), "p", &v))
	assert.Equal(t, before, v, "left alone")
	u := query("p", good, "other", "1")
	require.NoError(t, take(u, "p", &v))
	assert.Equal(t, after, v)
	assert.Equal(t, url.Values{"other": {"1"}}, u.Query, "taken off")
	for _, b := range bad {
		require.ErrorContains(t, take(query("p", b), "p", &v), "p=")
		assert.Equal(t, after, v)
	}
}

func TestTLS_serverName(t *testing.T) {
	for _, c := range []struct {
		u          *driver.URL
		name, want string
	}{
		{query(), "h.example", "h.example"},
		{query(), "", ""},
		{query("tls_server_name", "other.example"), "h.example", "other.example"},
	} {
		config, err := adapter.TLS(t.Context(), c.u, "redis", c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, config.ServerName)
		assert.False(t, config.InsecureSkipVerify)
		assert.EqualValues(t, tls.VersionTLS12, config.MinVersion)
		assert.Empty(t, c.u.Query)
	}
}

func TestTLS_ofAPlainScheme(t *testing.T) {
	u := query("other", "1")
	u.Scheme = "redis"
	config, err := adapter.TLS(t.Context(), u, "redis", "h")
	require.NoError(t, err)
	assert.Nil(t, config)
	for _, name := range []string{"tls_ca", "tls_cert", "tls_key", "tls_server_name", "tls_skip_verify"} {
		u := query(name, "x")
		u.Scheme = "redis"
		_, err := adapter.TLS(t.Context(), u, "redis", "h")
		assert.EqualError(t, err, "parameter "+name+" goes with rediss://, and this is redis://")
	}
}

func TestTLS_skipVerify(t *testing.T) {
	config, err := adapter.TLS(t.Context(), query("tls_skip_verify", "true", "tls_server_name", "n"), "redis", "h")
	require.NoError(t, err)
	assert.True(t, config.InsecureSkipVerify)
	assert.Equal(t, "n", config.ServerName, "servers choose their certificate by it")
	config, err = adapter.TLS(t.Context(), query("tls_skip_verify", "false"), "redis", "h")
	require.NoError(t, err)
	assert.False(t, config.InsecureSkipVerify)
	for _, u := range []*driver.URL{query("tls_skip_verify", "perhaps"), query("tls_skip_verify", "true", "tls_ca", "ca.pem")} {
		_, err := adapter.TLS(t.Context(), u, "redis", "h")
		require.ErrorContains(t, err, "tls_skip_verify")
	}
}

func TestTLS_files(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisTLS())
	config, err := adapter.TLS(t.Context(), query("tls_ca", s.CAFile, "tls_cert", s.CertFile, "tls_key", s.KeyFile), "redis", "127.0.0.1")
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", s.Addr(), config.Config)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	dir, other := t.TempDir(), testserver.Redis(t, testserver.RedisTLS())
	files := testserver.CopyFiles(t, dir, s.CAFile, s.CertFile, s.KeyFile)
	config, err = adapter.TLS(t.Context(), query("tls_ca", files[0], "tls_cert", files[1], "tls_key", files[2]), "redis", "")
	require.NoError(t, err)
	dial := adapter.TLSDialer(&net.Dialer{}, config)
	reaches := func(s *testserver.RedisServer) error {
		conn, err := dial(t.Context(), "tcp", s.Addr())
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("PING\r\n"))
		_, unread := conn.Read(make([]byte, 7)) // where a server says that it refuses a certificate
		return errors.Join(err, unread, conn.Close())
	}
	require.NoError(t, reaches(s))
	testserver.CopyFiles(t, dir, s.CAFile, other.CertFile)
	require.NoError(t, os.Remove(files[0]))
	require.NoError(t, reaches(s), "while files are replaced, the last ones count")
	testserver.CopyFiles(t, dir, other.CAFile, other.CertFile, other.KeyFile)
	require.NoError(t, reaches(other))
	require.Error(t, reaches(s))

	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	require.NoError(t, os.WriteFile(rubbish, []byte("rubbish"), 0o600))
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, c := range []struct {
		u    *driver.URL
		want string
	}{
		{query("tls_ca", rubbish), rubbish},
		{query("tls_ca", missing), missing},
		{query("tls_ca", ""), "tls_ca"},
		{query("tls_server_name", ""), "tls_server_name"},
		{query("tls_cert", s.CertFile), "go together"},
		{query("tls_key", s.KeyFile), "go together"},
		{query("tls_cert", missing, "tls_key", s.KeyFile), missing},
		{query("tls_cert", rubbish, "tls_key", s.KeyFile), "tls_cert"},
		{query("tls_cert", s.CertFile, "tls_key", rubbish), "tls_key"},
	} {
		_, err := adapter.TLS(t.Context(), c.u, "redis", "")
		require.ErrorContains(t, err, c.want)
	}
	_, err = adapter.TLS(t.Context(), query("tls_ca", missing), "redis", "")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// What is not a file may block, or never end, and what is in a file is nobody's business.
func TestTLS_refusesWhatIsNoPlainFile(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisTLS())
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.pem")
	require.NoError(t, os.WriteFile(huge, bytes.Repeat([]byte("s3cret\n"), 200_000), 0o600))
	link := filepath.Join(dir, "link.pem")
	require.NoError(t, os.Symlink(s.CAFile, link))
	_, err := adapter.TLS(t.Context(), query("tls_ca", link), "redis", "")
	require.NoError(t, err, "a secret of Kubernetes is a symbolic link")

	for file, want := range map[string]string{dir: "not a regular file", os.DevNull: "not a regular file", huge: "more than 1048576 bytes"} {
		for parameter, u := range map[string]*driver.URL{
			"tls_ca":   query("tls_ca", file),
			"tls_cert": query("tls_cert", file, "tls_key", s.KeyFile),
			"tls_key":  query("tls_cert", s.CertFile, "tls_key", file),
		} {
			_, err := adapter.TLS(t.Context(), u, "redis", "")
			require.ErrorContains(t, err, "parameter "+parameter)
			require.ErrorContains(t, err, file)
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "s3cret")
		}
	}
}

func TestTLS_whenItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := adapter.TLS(ctx, query("tls_ca", "ca.pem"), "redis", "")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "tls_ca")
}
