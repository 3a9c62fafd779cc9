package thirdparty

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// Tests called TestRepro_ show one finding each, by the library's own API on a real server. They pass as long as it
// is there: one that fails after an update has found a repair, and its finding has to go.

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

const (
	soon  = 300 * time.Millisecond // by far longer than a request takes
	later = 20 * time.Second       // longer than this machine is ever busy
)

// await returns when condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, later, 5*time.Millisecond, what)
}

// pending requires that a call does not return for d.
func pending(t *testing.T, call string, done <-chan error, d time.Duration) {
	t.Helper()
	select {
	case err := <-done:
		require.Fail(t, call+" has returned", "it says: %v", err)
	case <-time.After(d):
	}
}

// result is what a call says, which has to return.
func result(t *testing.T, call string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(later):
		require.Fail(t, call+" does not return")
		return nil
	}
}

// unordered requires that what tells holds apart does not tell which came first.
func unordered(t *testing.T, values []string) {
	t.Helper()
	require.Greater(t, len(values), 15)
	assert.False(t, slices.IsSorted(values), "%q", values)
}

// methods are those that a library's type has.
func methods(value reflect.Type) []string {
	var names []string
	for m := range value.Methods() {
		names = append(names, m.Name)
	}
	return names
}

// redisNode is a server, and a client of it that no fault disturbs.
type redisNode struct {
	*testserver.RedisServer
	direct *goredis.Client
}

func startRedis(t *testing.T) redisNode {
	t.Helper()
	logging.Disable() // go-redis prints what is broken on purpose
	s := testserver.Redis(t)
	return redisNode{s, dialRedis(t, s.Addr())}
}

func (n redisNode) has(t *testing.T, key string) bool {
	t.Helper()
	count, err := n.direct.Exists(t.Context(), key).Result()
	require.NoError(t, err)
	return count == 1
}

// calls returns how often commands were executed that begin with prefix, since forget.
func (n redisNode) calls(t *testing.T, prefix string) (total int) {
	t.Helper()
	stats, err := n.direct.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(stats) {
		var calls int
		if _, fields, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(line, "cmdstat_"+prefix) {
			_, err := fmt.Sscanf(fields, "calls=%d,", &calls)
			require.NoError(t, err)
			total += calls
		}
	}
	return total
}

func (n redisNode) forget(t *testing.T) {
	t.Helper()
	require.NoError(t, n.direct.ConfigResetStat(t.Context()).Err())
}
