package redigo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redigo://h?replicas=1&replica_timeout=3s", "read_timeout"},
		{"redigo://h?cluster=true", "known are backoff, client_name, dial_timeout,"},
	} {
		_, err := locker.Open(t.Context(), c.url)
		require.ErrorContains(t, err, c.want, c.url)
	}
}
