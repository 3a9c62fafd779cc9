package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	each := func(do func(*testserver.RedisServer)) {
		for _, s := range q.servers {
			do(s)
		}
	}
	harness.Inspect(t, harness.Inspection{
		URL: "redlock://" + strings.Join(q.addrs(), ",") + "?renew=false&node_timeout=400ms", TTL: 3 * time.Second,
		Left: true, Since: true, LastToken: true, TokenWhenWaited: true,
		Stop: func() func() {
			each((*testserver.RedisServer).Stop)
			return func() { each((*testserver.RedisServer).Continue) }
		},
		Kill: func() { each((*testserver.RedisServer).Kill) },
	})
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	harness.Abandon(t, "redlock://"+strings.Join(newQuorum(t, 3).addrs(), ",")+"?node_timeout=400ms", 3*time.Second)
}

// A node hangs. The hold ends at the others, and when the node is back it keeps nobody's.
func TestForceRelease_whileANodeHangs(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	m, operator := unhurriedClient(t, q.addrs()).Mutex("x"), unhurriedClient(t, q.addrs())
	require.NoError(t, m.Lock(t.Context()))
	state, err := operator.Inspect(t.Context(), "x")
	require.NoError(t, err)
	q.servers[0].Stop()
	err = operator.ForceRelease(t.Context(), "x", state)
	var names []string
	for name, err := range operator.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, name)
	}
	q.servers[0].Continue()
	require.NoError(t, err)
	assert.Empty(t, names, "one node has it")
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	next := operator.Mutex("x")
	require.NoError(t, next.Lock(t.Context()))
	assert.Greater(t, next.FencingToken(), state.Token)
	require.NoError(t, next.Unlock(t.Context()))
}
