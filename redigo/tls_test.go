package redigo_test

import (
	"crypto/x509"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

func lockTLS(t *testing.T, s *testserver.RedisServer, parameters ...string) error {
	t.Helper()
	q := url.Values{"ttl": {"5s"}} // an attempt may take half of that
	for i := 0; i < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	c := openClient(t, "redigos://"+s.Addr()+"?"+q.Encode())
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

	require.NoError(t, lockTLS(t, s, with("tls_ca", s.CAFile)...))
	require.NoError(t, lockTLS(t, s, with("tls_ca", s.CAFile, "tls_server_name", "localhost")...))
	require.NoError(t, lockTLS(t, s, with("tls_skip_verify", "true")...), "whoever signed it")

	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, lockTLS(t, s, with("tls_ca", other.CAFile)...), &unknown, "the wrong authority")
	require.ErrorAs(t, lockTLS(t, s, mine...), &unknown, "the system's authorities")
	var wrongName x509.HostnameError
	require.ErrorAs(t, lockTLS(t, s, with("tls_ca", s.CAFile, "tls_server_name", "elsewhere.example")...), &wrongName)
	err := lockTLS(t, s, "tls_ca", s.CAFile)
	require.Error(t, err, "no certificate of the client's")
	assert.NotErrorIs(t, err, locker.ErrHeld)
}

// A handshake that gets no answer ends with its context, and leaves nobody waiting for it.
func TestTLS_aHandshakeThatHangs(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }() // never accepts
	c := openClient(t, "redigos://"+l.Addr().String())
	wantEndsWithCtx(t, c)
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), 2*time.Second)
}
