package core_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestNew_refusesWhatIsNotValid(t *testing.T) {
	for name, c := range map[string]struct {
		option      locker.Option
		want        string
		unsupported bool
	}{
		"TTL of zero":         {locker.WithTTL(0), "TTL 0s", true},
		"negative TTL":        {locker.WithTTL(-time.Second), "TTL -1s", true},
		"largest negative":    {locker.WithTTL(math.MinInt64), "TTL", true},
		"tiny TTL":            {locker.WithTTL(4 * time.Millisecond), "TTL 4ms: must be at least 5ms", true},
		"nil option":          {nil, "nil Option", false},
		"backoff of zero":     {locker.WithBackoff(0, time.Second), "backoff", false},
		"negative backoff":    {locker.WithBackoff(-1, time.Second), "backoff", false},
		"backoff upside down": {locker.WithBackoff(2, 1), "backoff", false},
		"prefix not UTF-8":    {locker.WithPrefix("\xff"), "prefix", false},
		"nil logger":          {locker.WithLogger(nil), "nil logger", false},
		"token base":          {locker.WithTokenBase(1<<63 + 1), "token base 9223372036854775809", false},
		"guarantee":           {locker.Require(locker.Fencing), "fencing", true},
		"unknown guarantee":   {locker.Require("fast"), `unknown guarantee "fast"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &fakeDriver{}
			client, err := locker.New(d, c.option)
			assert.Nil(t, client)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.unsupported, errors.Is(err, locker.ErrUnsupported), "%v", err)
			var e *locker.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, "new", e.Op)
			assert.False(t, d.closed, "the Driver is still the caller's")
		})
	}
}

func TestNew_takesTheBoundsOfWhatIsValid(t *testing.T) {
	for _, o := range []locker.Option{
		locker.WithTTL(5 * time.Millisecond), locker.WithTTL(math.MaxInt64), locker.WithBackoff(1, 1),
		locker.WithTokenBase(1 << 63), locker.WithPrefix(""), locker.WithLogger(slog.Default()), locker.Require(),
	} {
		c, err := locker.New(&fakeDriver{}, o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	_, err := locker.New(nil)
	require.ErrorContains(t, err, "nil Driver")
}

// It is one line, for it ends up in a log, where a line is an event.
func TestRequire_namesAllThatIsMissingAndItsCondition(t *testing.T) {
	_, err := locker.New(&fakeDriver{},
		locker.Require(locker.Exclusive, locker.Fencing, locker.Failover), locker.Require(locker.Ordered, locker.Fencing))
	require.ErrorIs(t, err, locker.ErrUnsupported)
	require.EqualError(t, err, `locker: new: not supported by the backend: `+
		`"fencing" is conditional: promised only while the moon is full; `+
		`"failover" is not promised: there is one of it; "ordered" is not promised`)
	_, err = locker.New(&fakeDriver{}, locker.Require("speed"))
	require.ErrorContains(t, err, `"speed"`)
	require.ErrorContains(t, err, "exclusive, failover, fencing, fencing-durable, ordered, woken")
}

func TestRequire_whatIsPromised(t *testing.T) {
	c, err := locker.New(&fakeDriver{}, locker.Require(locker.Exclusive))
	require.NoError(t, err)
	assert.Equal(t, "yes", c.Guarantees()[locker.Exclusive].String())
	assert.Equal(t, "conditional: while the moon is full", c.Guarantees()[locker.Fencing].String())
	assert.Equal(t, "no", c.Guarantees()[locker.Woken].String(), "what is missing is not promised")
	assert.Equal(t, c.Guarantees(), c.Mutex("x").Guarantees())
	require.NoError(t, c.Close())
}

func TestTTL_thatTheBackendCannotHonour(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &picky{&fakeDriver{b: b}}
		_, err := locker.New(d, locker.WithTTL(1500*time.Millisecond))
		require.ErrorIs(t, err, locker.ErrUnsupported)
		require.ErrorContains(t, err, "whole seconds would do")

		m := clientOf(t, d).Mutex("x", locker.WithTTL(1500*time.Millisecond))
		for _, err := range []error{m.Lock(t.Context()), m.Unlock(t.Context()), m.Extend(t.Context())} {
			require.ErrorIs(t, err, locker.ErrUnsupported)
			require.ErrorContains(t, err, "whole seconds would do")
		}
		assert.Empty(t, b.sent)
		require.NoError(t, clientOf(t, d).Mutex("x", locker.WithTTL(2*time.Second)).Lock(t.Context()))
	})
}

func TestTTL_defaultsToThirtySeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c, err := locker.New(&fakeDriver{b: b})
		require.NoError(t, err)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, 29698*time.Millisecond, time.Until(m.Deadline()))
		time.Sleep(time.Minute)
		assert.NotZero(t, m.FencingToken(), "and is renewed")
		assert.Equal(t, "locker:x", b.calls(acquire)[0].name)
		require.NoError(t, c.Close())
	})
}

func TestTTL_defaultsToTheDrivers(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		for _, opts := range [][]locker.Option{nil, {locker.WithTTL(8 * time.Second)}} {
			c, err := locker.New(&picky{&fakeDriver{b: b}}, opts...)
			require.NoError(t, err)
			require.NoError(t, c.Mutex("x").Lock(t.Context()))
			require.NoError(t, c.Close())
		}
		assert.Equal(t, 7*time.Second, b.calls(acquire)[0].req.TTL)
		assert.Equal(t, 8*time.Second, b.calls(acquire)[1].req.TTL)
	})
}

func TestMutexOption_winsOverTheClients(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithTTL(time.Minute), locker.WithTTL(20*time.Second))
		own, other := c.Mutex("own", locker.WithTTL(3*time.Second), locker.WithoutRenewal()), c.Mutex("other")
		require.NoError(t, own.Lock(t.Context()))
		require.NoError(t, other.Lock(t.Context()))
		assert.Equal(t, 3*time.Second, b.calls(acquire)[0].req.TTL)
		assert.Equal(t, 20*time.Second, b.calls(acquire)[1].req.TTL, "the last one counts")
		time.Sleep(time.Minute)
		assert.Zero(t, own.FencingToken())
		assert.NotZero(t, other.FencingToken(), "options of one Mutex are its own")
	})
}

func TestWithTokenBase_isAddedToEveryToken(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		const base = uint64(1) << 63
		m := b.locked(t, "x", locker.WithTokenBase(base))
		assert.Equal(t, base+1, m.FencingToken())
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, base+1, m.FencingToken())
		require.NoError(t, m.Unlock(t.Context()))
		assert.Zero(t, m.FencingToken(), "0 stays 0")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		assert.Equal(t, base+2, h.Token())
	})
}
