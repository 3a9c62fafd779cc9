package redisscript

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestInspect_ofWhatTheScriptReturns(t *testing.T) {
	none, unknown := []any{}, int64(-1)
	for name, c := range map[string]struct {
		reply any
		want  locker.State
	}{
		"nothing":  {[]any{"", "", int64(-60002), "", unknown, none, none}, locker.State{}},
		"released": {[]any{"", "", int64(500), "7", unknown, none, none}, locker.State{Token: 7}},
		"expired":  {[]any{"a", "host 7", int64(0), "7", unknown, none, none}, locker.State{Token: 7}},
		"held": {[]any{"a", "host 7", int64(1), "7", unknown, none, none}, locker.State{
			Held: true, Holder: locker.Participant{ID: "a", Metadata: "host 7"}, Left: time.Millisecond, Token: 7,
		}},
		"held, as redigo has it": {[]any{[]byte("a"), []byte(""), int64(1), []byte("7"), unknown, []any{[]byte("pb/1"), []byte("pb/2")}, none}, locker.State{
			Held: true, Holder: locker.Participant{ID: "a"}, Left: time.Millisecond, Token: 7,
			Waiters: []locker.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"shared": {[]any{"+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{"~a", ">pb/~1", "c"}}, locker.State{
			Held: true, Shares: []locker.Participant{{ID: "~a"}, {ID: "c"}}, Left: time.Millisecond, Token: 7,
			Waiters: []locker.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over to some": {[]any{">+", "", int64(1), "7", unknown, []any{"pb/2"}, []any{">pb/~1"}}, locker.State{
			Token: 7, Waiters: []locker.Participant{{ID: "pb/~1"}, {ID: "pb/2"}},
		}},
		"handed over": {[]any{">pb/1", "", int64(1), "7", unknown, []any{"pb/2"}, none}, locker.State{
			Token: 7, Waiters: []locker.Participant{{ID: "pb/1"}, {ID: "pb/2"}},
		}},
		"handed over, and not taken": {[]any{">pb/1", "", int64(-1), "7", unknown, []any{"pb/2"}, none}, locker.State{
			Token: 7, Waiters: []locker.Participant{{ID: "pb/2"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDriver(&fakeRunner{answer: func(*Script, []any) (any, error) { return c.reply, nil }})
			state, err := d.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.Equal(t, c.want, state)
		})
	}
}

func TestInspect_ofOtherReplies(t *testing.T) {
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
		d := NewDriver(&fakeRunner{answer: func(*Script, []any) (any, error) { return reply, nil }})
		state, err := d.Inspect(t.Context(), "x")
		require.ErrorContains(t, err, "unexpected reply to the inspect script", "%#v", reply)
		assert.Equal(t, locker.State{}, state)
	}
	boom := errors.New("boom")
	d := NewDriver(&fakeRunner{answer: func(*Script, []any) (any, error) { return nil, boom }})
	_, err := d.Inspect(t.Context(), "x")
	require.ErrorIs(t, err, boom)
}
