package script

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server's clock of the year 2255, or a wrong one: no number is exact there.
func TestAcquire_ofAFreeLockByAClockBeyond2To53IsRefused(t *testing.T) {
	s := newAtServer(t)
	const waiter = "pP/a"
	s.ask(waiter, ttl, 0)
	s.release(waiter, 0, 0)
	before := s.rdb.HGet(t.Context(), s.keys[0], "token").Val()

	source := strings.Replace(Take.Source, "redis.call('TIME')", "{'9007199254', '740992'}", 1)
	require.NotEqual(t, Take.Source, source)
	_, err := s.rdb.Eval(t.Context(), source, s.keys, []any{waiter, Expiry(ttl), inTime(0), ""}...).Result()
	require.ErrorContains(t, err, "2^53")
	assert.Equal(t, before, s.rdb.HGet(t.Context(), s.keys[0], "token").Val())
}
