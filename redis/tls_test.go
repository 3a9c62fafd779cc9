package redis_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	harness.RedisTLS(t, "redis")
}

func TestTLS_filesThatAreNoPEM(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisTLS())
	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	require.NoError(t, os.WriteFile(rubbish, []byte("rubbish"), 0o600))
	for _, parameter := range []string{"tls_ca", "tls_cert", "tls_key"} {
		q := url.Values{"tls_ca": {s.CAFile}, "tls_cert": {s.CertFile}, "tls_key": {s.KeyFile}}
		q.Set(parameter, rubbish)
		_, err := locker.Open(t.Context(), s.URL()+"?"+q.Encode())
		require.ErrorContains(t, err, parameter)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	_, err := locker.Open(t.Context(), s.URL()+"?tls_ca="+url.QueryEscape(missing))
	require.ErrorContains(t, err, missing)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
