package script

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// go-redis sends a pipeline again, and keeps the number that the try before has brought.
func TestReplicas_areNotThoseOfATryBefore(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	replies := []Reply{{Value: int64(Granted)}, {Value: int64(Held)}}
	Replicas{N: 1}.Acknowledged([]Call{{Script: Extend}, {Script: Extend}}, replies, 1, broken)
	assert.Equal(t, []Reply{{Value: int64(Granted), Err: broken, Ran: true, MayHaveRun: true}, {Value: int64(Held)}}, replies)
}

// Servers word it so: Redis 7.0.15, and 6.0.16.
func TestIsReadOnly(t *testing.T) {
	t.Parallel()
	assert.True(t, IsReadOnly("READONLY You can't write against a read only replica."))
	assert.True(t, IsReadOnly("ERR Error running script (call to f_0a1b): @user_script:366: @user_script: 366: -READONLY You can't write against a read only replica."))
	assert.False(t, IsReadOnly("ERR the name READONLY is taken"))
}

// tag is the part of a key that Redis Cluster hashes: between the first '{' and the next '}', if
// there is anything between them, else all of it.
func tag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	inner, _, ok := strings.Cut(rest, "}")
	if !ok || inner == "" {
		return key
	}
	return inner
}

var names = []string{
	"a", "b", "A", " ", "  ", "{", "}", "{}", "}{", "{{", "}}", "{a}", "{a}b", "a}", "a{", "%", "%%", "%7D", "%7d", "%257D",
	"%25", "%25%7D", "%}", "}%", "\x00", "a\x00", "\n", "\r\n", "/", "//", ":", "locker:a", "locker%3Aa", "locker:%mark", "é", "e\u0301",
	strings.Repeat("}", 4096), strings.Repeat("}", 4095), strings.Repeat("x", 4096),
}

func FuzzKey(f *testing.F) {
	for i, name := range names {
		f.Add(name, names[(i+1)%len(names)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // the core refuses them
		}
		if (a == b) != (Key(a) == Key(b)) {
			t.Errorf("names %q and %q have the keys %q and %q", a, b, Key(a), Key(b))
		}
		key := Key(a)
		if want := key[1 : len(key)-1]; tag(key) != want {
			t.Errorf("the hash tag of %q is %q, and not all of it", key, tag(key))
		}
		if tag(key+b) != tag(key) || tag(key+":"+b+"}") != tag(key) {
			t.Errorf("keys that begin with %q are not all on one slot", key)
		}
		// Key has an inverse, so it is injective.
		if back, ok := NameOf(key); !ok || back != a {
			t.Errorf("%q can be read back from %q as %q", a, key, back)
		}
	})
}

// A script of a Redis Cluster reaches what has the lock's slot.
func TestMarkKey_hasTheSlotOfTheLock(t *testing.T) {
	require.EqualValues(t, 0x31c3, crc16(0, "123456789"), "the Redis Cluster specification has this example")
	slots := map[uint16]bool{}
	for _, name := range names {
		slot := crc16(0, tag(Key(name))) % 16384
		assert.Equal(t, slot, crc16(0, tag(MarkKey(name, true)))%16384, "%q", name)
		slots[slot] = true
	}
	assert.Greater(t, len(slots), len(names)/2, "names spread over slots")
}

func TestNameOf_isOfTheKeysOfLocksAlone(t *testing.T) {
	for _, key := range []string{
		MarkKey("locker:a", false), MarkKey("locker:a", true),
		"{locker:a}:queue", "locker:a", "{locker:a", "locker:a}", "{locker:a}b}", "", "{", "}",
	} {
		name, ok := NameOf(key)
		assert.False(t, ok, "%q is the key of %q", key, name)
	}
}
