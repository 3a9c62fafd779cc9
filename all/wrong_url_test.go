package all_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The error of a URL that does not suit the servers says what of it is wrong.
func TestOpen_errorsSayWhatOfTheURLIsWrong(t *testing.T) {
	t.Parallel()
	plain, secure, sentinels := testserver.Redis(t), testserver.Redis(t, testserver.RedisTLS()), testserver.Sentinel(t)
	for _, scheme := range []string{"redis", "redigo"} {
		for url, want := range map[string]string{
			"://" + sentinels.Addrs()[0]:                        `if it is a Sentinel, the URL needs the parameter master_name`,
			"://" + sentinels.Addrs()[0] + "?master_name=wrong": `no sentinel (knows|watches) `,
			"://" + secure.Addr():                               `as a port for TLS does|reset by peer`,
			"s://" + plain.Addr() + "?dial_timeout=500ms":       `is it a port for TLS\?`,
		} {
			c, err := locker.Open(t.Context(), scheme+url, locker.WithTTL(time.Minute))
			require.NoError(t, err)
			assert.Regexp(t, want, c.Mutex("x").TryLock(t.Context()).Error(), scheme+url)
			require.NoError(t, c.Close())
		}
	}
}
