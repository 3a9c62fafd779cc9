package script

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplicas_haveWhatIsLeftOfCtx(t *testing.T) {
	within := func(left, timeout time.Duration) time.Duration {
		ctx := t.Context()
		if left != 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left)
			defer cancel()
		}
		r := Replicas{N: 2, Timeout: timeout}.Within(ctx)
		require.Equal(t, 2, r.N)
		require.Zero(t, r.Timeout%time.Millisecond, "WAIT takes whole milliseconds")
		return r.Timeout
	}
	assert.Equal(t, 500*time.Millisecond, within(0, 500*time.Millisecond))
	assert.Equal(t, 500*time.Millisecond, within(time.Minute, 500*time.Millisecond))
	some := within(time.Second, time.Minute)
	assert.Less(t, some, time.Second, "less than what is left")
	assert.Positive(t, some)
	assert.Equal(t, time.Millisecond, within(-time.Second, time.Minute), "0 would be for ever")
}

// passes is a Runner that answers each of its passes as it is told, and notes what was sent.
type passes struct {
	replies [][]Reply
	sent    [][]Call
}

func (p *passes) Run(_ context.Context, calls []Call, replies []Reply) {
	copy(replies, p.replies[len(p.sent)])
	p.sent = append(p.sent, slices.Clone(calls))
}

// The first call of a script that the server has lost brings it, and the others come behind that one. What may have run in one pass may
// have run whatever the next one says.
func TestRun_sendsAgainWhatTheServerHasNotRun(t *testing.T) {
	lost, moves, busy := errors.New("NOSCRIPT No matching script"), errors.New("TRYAGAIN Multiple keys"), errors.New("LOADING")
	one := Reply{Value: int64(1)}
	p := &passes{replies: [][]Reply{
		{{Err: lost, MayHaveRun: true}, {Err: lost}, {Err: moves}, {Err: busy, Again: true}, one},
		{{Err: busy}, one, one, {Err: busy, Again: true}},
	}}
	both := KeysOf("x")
	keys := both[:]
	calls := []Call{
		{Script: Take, Keys: keys}, {Script: Take, Keys: keys}, {Script: Release, Keys: keys}, {Script: Extend, Keys: keys[:1]}, {Script: Raise},
	}
	replies := make([]Reply, len(calls))
	Run(t.Context(), p, calls, replies)
	require.Len(t, p.sent, 2, "each error is answered once")
	again := p.sent[1]
	require.Len(t, again, 4)
	assert.True(t, again[0].Load)
	assert.False(t, again[1].Load, "it comes behind the one that brings the script")
	assert.Equal(t, keys[:1], again[2].Keys, "the script finds the queue by itself")
	assert.Equal(t, Extend, again[3].Script)
	assert.Equal(t, Reply{Err: busy, MayHaveRun: true}, replies[0])
	assert.Equal(t, []Reply{one, one}, replies[1:3])
	require.ErrorIs(t, replies[3].Err, busy)
	assert.Equal(t, one, replies[4])
}

// Servers word it so: Redis 7.0.15, and 6.0.16.
func TestIsReadOnly(t *testing.T) {
	t.Parallel()
	assert.True(t, IsReadOnly("READONLY You can't write against a read only replica."))
	assert.True(t, IsReadOnly("ERR Error running script (call to f_0a1b): @user_script:366: @user_script: 366: -READONLY You can't write against a read only replica."))
	assert.False(t, IsReadOnly("ERR the name READONLY is taken"))
}
