package redis_test

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

func openTLS(t *testing.T, s *testserver.RedisServer, parameters ...string) error {
	t.Helper()
	q := url.Values{"ttl": {"500ms"}} // after half of it a Lock fails that cannot succeed
	for i := 0; i < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	c, err := locker.Open(t.Context(), s.URL()+"?"+q.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex("x")
	if err := m.Lock(t.Context()); err != nil {
		return err
	}
	return m.Unlock(t.Context())
}

func TestTLS(t *testing.T) {
	s, other := testserver.Redis(t, testserver.RedisTLS()), testserver.Redis(t, testserver.RedisTLS())
	mine := []string{"tls_cert", s.CertFile, "tls_key", s.KeyFile}
	with := func(more ...string) []string { return append(more, mine...) }

	require.NoError(t, openTLS(t, s, with("ttl", "30s", "tls_ca", s.CAFile)...))
	require.NoError(t, openTLS(t, s, with("ttl", "30s", "tls_ca", s.CAFile, "tls_server_name", "localhost")...))
	require.NoError(t, openTLS(t, s, with("ttl", "30s", "tls_skip_verify", "true")...), "whoever signed it")

	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, openTLS(t, s, with("tls_ca", other.CAFile)...), &unknown, "the wrong authority")
	require.ErrorAs(t, openTLS(t, s, mine...), &unknown, "the system's authorities")
	var wrongName x509.HostnameError
	require.ErrorAs(t, openTLS(t, s, with("tls_ca", s.CAFile, "tls_server_name", "elsewhere.example")...), &wrongName)

	for name, err := range map[string]error{
		"no certificate":           openTLS(t, s, "tls_ca", s.CAFile),
		"another's certificate":    openTLS(t, s, "tls_ca", s.CAFile, "tls_cert", other.CertFile, "tls_key", other.KeyFile),
		"another's key":            openTLS(t, s, "tls_ca", s.CAFile, "tls_cert", s.CertFile, "tls_key", other.KeyFile),
		"no TLS on the other side": openTLS(t, s, with("tls_ca", s.CertFile)...),
	} {
		require.Error(t, err, name)
		require.NotErrorIs(t, err, locker.ErrHeld, name)
	}
	plain, err := locker.Open(t.Context(), "redis://"+s.Addr()+"?ttl=500ms")
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	err = plain.Mutex("x").Lock(t.Context())
	require.Error(t, err, "a client without TLS")
	assert.NotErrorIs(t, err, locker.ErrHeld)
}

func TestTLS_filesThatAreNoPEM(t *testing.T) {
	s := testserver.Redis(t, testserver.RedisTLS())
	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	require.NoError(t, os.WriteFile(rubbish, []byte("rubbish"), 0o600))
	for _, parameter := range []string{"tls_ca", "tls_cert", "tls_key"} {
		files := map[string]string{"tls_ca": s.CAFile, "tls_cert": s.CertFile, "tls_key": s.KeyFile}
		files[parameter] = rubbish
		var all []string
		for k, v := range files {
			all = append(all, k, v)
		}
		require.ErrorContains(t, openTLS(t, s, all...), parameter)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	err := openTLS(t, s, "tls_ca", missing)
	require.ErrorContains(t, err, missing)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
