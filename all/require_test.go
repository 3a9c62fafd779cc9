package all_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/backends"
)

// aURL is one of each backend, at servers that nobody asks for anything.
var aURL = func() map[string]string {
	urls := map[string]string{}
	for _, b := range backends.Here() {
		urls[b.Schemes[0]] = b.Example
	}
	return urls
}()

func with(raw, parameters string) string {
	if strings.Contains(raw, "?") {
		return raw + "&" + parameters
	}
	return raw + "?" + parameters
}

// Who configures a backend that is too weak reads at start what is missing, and when it would do.
func TestRequire_aSwapToAWeakerBackendFailsAtStart(t *testing.T) {
	const (
		unsupported = "locker: open: not supported by the backend: "
		noFailover  = `"failover" is not promised: replication is asynchronous, and a failover can lose the lock`
		remember    = "conditional: promised only while clocks are sane, and nodes keep their data and evict no keys"
	)
	for backend, want := range map[string]string{
		"mem":       unsupported + `"failover" is not promised: there is one process, and no server to fail over to`,
		"redis":     unsupported + noFailover,
		"redigo":    unsupported + noFailover,
		"redlock":   unsupported + `"fencing" is ` + remember + `; "failover" is ` + remember,
		"etcd":      "",
		"zookeeper": "",
	} {
		c, err := locker.Open(t.Context(), with(aURL[backend], "require=fencing,failover"))
		if want == "" {
			require.NoError(t, err, backend)
			require.NoError(t, c.Close())
			continue
		}
		require.ErrorIs(t, err, locker.ErrUnsupported, backend)
		assert.EqualError(t, err, want, backend)
	}
}
