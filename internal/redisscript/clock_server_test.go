package redisscript

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server's clock of the year 2255, or a wrong one: no number is exact there.
func TestAcquire_ofAFreeLockByAClockBeyond2To53IsRefused(t *testing.T) {
	s := newAtServer(t)
	const taking = "pP/a"
	s.ask(taking, ttl, 0)
	s.release(taking, 0, 0)
	before := s.rdb.HGet(t.Context(), s.keys[0], "token").Val()

	const beyond = "local time, clock = {'9007199254', '740992'}, '9007199254740992'\n"
	source := strings.Replace(acquire.Source, sourceOf("clock"), beyond, 1)
	require.NotEqual(t, acquire.Source, source)
	_, err := s.rdb.Eval(t.Context(), source, s.keys, []any{taking, expiry(ttl), inTime(0), ""}...).Result()
	require.ErrorContains(t, err, "2^53")
	assert.Equal(t, before, s.rdb.HGet(t.Context(), s.keys[0], "token").Val())
}
