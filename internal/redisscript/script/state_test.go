package script

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

func TestParseState_ofWhatTheScriptReturns(t *testing.T) {
	none, unknown := []any{}, int64(-1)
	for name, c := range map[string]struct {
		reply any
		want  driver.State
	}{
		"nothing":  {[]any{"", "", int64(-60002), "", unknown, none, none}, driver.State{}},
		"released": {[]any{"", "", int64(500), "7", unknown, none, none}, driver.State{Token: 7}},
		"expired":  {[]any{"a", "host 7", int64(0), "7", unknown, none, none}, driver.State{Token: 7}},
		"held": {[]any{"a", "host 7", int64(1), "7", unknown, none, none}, driver.State{
			Held: true, Holder: driver.Participant{ID: "a", Metadata: "host 7"}, Left: time.Millisecond, Token: 7,
		}},
		"held, as redigo has it": {[]any{[]byte("a"), []byte(""), int64(1), []byte("7"), unknown, []any{[]byte("pb/1"), []byte("pb/2")}, none}, driver.State{
			Held: true, Holder: driver.Participant{ID: "a"}, Left: time.Millisecond, Token: 7,
			Waiters: []driver.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"shared": {[]any{"+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{"~a", ">pb/~1", "c"}}, driver.State{
			Held: true, Shares: []driver.Participant{{ID: "~a"}, {ID: "c"}}, Left: time.Millisecond, Token: 7,
			Waiters: []driver.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over to some": {[]any{">+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{">pb/~1"}}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over": {[]any{">pb/1", "", int64(1), "7", unknown, []any{"pb/2"}, none}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"handed over, and not taken": {[]any{">pb/1", "", int64(-1), "7", unknown, []any{"pb/2"}, none}, driver.State{
			Token: 7, Waiters: []driver.Participant{{ID: "pb/2"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			state, ok := ParseState(c.reply)
			require.True(t, ok)
			assert.Equal(t, c.want, state)
		})
	}
}

func TestParseState_ofOtherReplies(t *testing.T) {
	none, unknown := []any{}, int64(-1)
	for _, reply := range []any{
		nil, "text", int64(1), none,
		[]any{"", "", int64(1), ""},
		[]any{"", "", int64(1), "", unknown, none},
		[]any{"", "", int64(1), "", unknown, none, none, none},
		[]any{nil, "", int64(1), "", unknown, none, none},
		[]any{"", nil, int64(1), "", unknown, none, none},
		[]any{"", "", "1", "", unknown, none, none},
		[]any{"", "", int64(1), int64(7), unknown, none, none},
		[]any{"", "", int64(1), "", unknown, nil, none},
		[]any{"", "", int64(1), "", unknown, none, nil},
		[]any{"+", "", int64(1), "7", unknown, none, []any{int64(1)}},
		[]any{"", "", int64(1), "", unknown, []any{nil}, none},
		[]any{"", "", int64(1), "seven", unknown, none, none},
		[]any{"", "", int64(1), "-7", unknown, none, none},
		[]any{"", "", int64(1), "", "", none, none},
	} {
		_, ok := ParseState(reply)
		require.False(t, ok, "%#v", reply)
	}
}
