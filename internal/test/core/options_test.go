package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/backends"
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
		"unknown guarantee":   {locker.Require("fast"), `unknown guarantee "fast": known are exclusive, failover, fencing, fencing-durable, ordered, woken`, false},
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
		d := &fakeDriver{b: b, whole: true}
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
		assert.Equal(t, 29698*time.Millisecond, time.Until(m.Hold().Deadline()))
		time.Sleep(time.Minute)
		assert.NotZero(t, m.FencingToken(), "and is renewed")
		assert.Equal(t, "locker:x", b.calls(acquire)[0].name)
		require.NoError(t, c.Close())
	})
}

func TestTTL_defaultsToTheDrivers(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		for _, opts := range [][]locker.Option{nil, {locker.WithTTL(8 * time.Second)}} {
			c, err := locker.New(&fakeDriver{b: b, ttl: 7 * time.Second}, opts...)
			require.NoError(t, err)
			require.NoError(t, c.Mutex("x").Lock(t.Context()))
			require.NoError(t, c.Close())
		}
		assert.Equal(t, 7*time.Second, b.calls(acquire)[0].req.TTL)
		assert.Equal(t, 8*time.Second, b.calls(acquire)[1].req.TTL)
	})
}

var schemes atomic.Int64

// scheme registers open under a scheme that nothing else has.
func scheme(open driver.OpenFunc) string {
	s := fmt.Sprintf("test%d", schemes.Add(1))
	driver.Register(s, open)
	return s
}

// opened is what an OpenFunc got, and the Driver it returned.
type opened struct {
	fakeDriver
	url   *driver.URL
	knows string // the parameter that it takes
	err   error
}

func (o *opened) open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	o.url = u
	if o.knows != "" {
		u.Take(o.knows)
	}
	if o.err != nil {
		return nil, o.err
	}
	return &o.fakeDriver, nil
}

func TestOpen_appliesTheParametersOfEveryBackend(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		o := &opened{fakeDriver: fakeDriver{b: b}}
		url := scheme(o.open) + "://h?ttl=5s&renew=false&prefix=a%20b&token_base=1000" +
			"&require=exclusive,%20exclusive&metadata=me%20too&backoff=3s,4s"
		c, err := locker.Open(t.Context(), url, locker.WithTTL(time.Hour), locker.WithMetadata("me"))
		require.NoError(t, err)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, driver.Request{Name: "a b:x", Metadata: "me too", TTL: 5 * time.Second}, b.calls(acquire)[0].req)
		assert.EqualValues(t, 1001, m.FencingToken())
		require.NoError(t, c.Mutex("x").Lock(t.Context()), "after an expiry")
		assert.Empty(t, b.calls(extend))
		for _, gap := range gaps(b.times(acquire)[1:]) {
			assert.GreaterOrEqual(t, gap, 3*time.Second/2)
			assert.LessOrEqual(t, gap, 4*time.Second)
		}
		require.NoError(t, c.Close())
		assert.True(t, o.closed)
	})
}

func TestOpen_requiresWhatTheURLAndTheOptionsRequire(t *testing.T) {
	o := &opened{}
	s := scheme(o.open)
	for _, c := range []struct {
		query  string
		option locker.Option
	}{
		{"require=fencing", locker.Require(locker.Exclusive)},
		{"require=exclusive", locker.Require(locker.Fencing)},
		{"require=exclusive,fencing", locker.Require()},
	} {
		o.closed = false
		_, err := locker.Open(t.Context(), s+"://h?"+c.query, c.option)
		require.ErrorIs(t, err, locker.ErrUnsupported)
		require.ErrorContains(t, err, "while the moon is full")
		assert.True(t, o.closed, "the Driver is Open's, and is closed when New fails")
	}
}

func TestOpen_refusesParameters(t *testing.T) {
	for query, want := range map[string]string{
		"color=red":             `does not know the parameter "color"`,
		"zz=1&color=red":        `"color"`,
		"TTL=5s":                `"TTL"`,
		"ttl=5":                 `ttl="5" is not a duration such as 10s`,
		"ttl=":                  `ttl="" is not a duration`,
		"renew=maybe":           `renew="maybe" is not true or false`,
		"token_base=-1":         `token_base="-1" is not a whole number`,
		"token_base=1e3":        "token_base",
		"token_base=" + twoTo64: "token_base",
		"require=":              `unknown guarantee ""`,
		"backoff=1s":            `backoff="1s" is not two durations`,
		"backoff=1s,x":          "backoff",
		"ttl=5s&ttl=6s":         `"ttl" is given twice`,
		"ttl":                   "parameter 1",
		"ttl=5s&=5s":            "parameter 2",
	} {
		t.Run(query, func(t *testing.T) {
			o := &opened{knows: "knows"}
			c, err := locker.Open(t.Context(), scheme(o.open)+"://h?"+query)
			assert.Nil(t, c)
			require.ErrorContains(t, err, want)
			assert.True(t, o.closed || o.url == nil, "a Driver that was made is closed")
		})
	}
}

const (
	twoTo63 = "9223372036854775808"
	twoTo64 = "18446744073709551616"
)

// A backend that is unreachable does not hide what is wrong with the configuration.
func TestOpen_refusesValuesBeforeTheBackendIsAsked(t *testing.T) {
	for _, query := range []string{"ttl=0s", "token_base=" + twoTo63 + "1", "require=speed", "prefix=%FF", "backoff=1s,10ms"} {
		o := &opened{err: errRefused}
		_, err := locker.Open(t.Context(), scheme(o.open)+"://h?"+query)
		require.Error(t, err)
		require.NotErrorIs(t, err, errRefused)
		assert.Nil(t, o.url)
	}
	o := &opened{}
	_, err := locker.Open(t.Context(), scheme(o.open)+"://h", nil)
	require.ErrorContains(t, err, "nil Option")
	assert.Nil(t, o.url)
}

func TestOpen_anUnknownParameterIsToldWhichAreKnown(t *testing.T) {
	_, err := locker.Open(t.Context(), scheme((&opened{knows: "replicas"}).open)+"://h?replica=1")
	require.ErrorContains(t, err, `does not know the parameter "replica": known are backoff, metadata, prefix, renew, replicas, require, token_base, ttl`)
}

func TestOpen_unknownSchemeNamesTheMissingImport(t *testing.T) {
	for _, b := range backends.All[1:] { // the first is memory
		for _, s := range append(b.Schemes, strings.ToUpper(b.Schemes[0])) {
			_, err := locker.Open(t.Context(), s+"://localhost")
			require.ErrorContains(t, err, `"github.com/go-locker/locker/`+b.Folder()+`"`)
		}
	}
	known := scheme((&opened{}).open)
	_, err := locker.Open(t.Context(), "oracle://localhost")
	require.ErrorContains(t, err, `unknown scheme "oracle"`)
	require.ErrorContains(t, err, known)
}

func TestOpen_returnsTheAdaptersErrorAsItIs(t *testing.T) {
	_, err := locker.Open(t.Context(), scheme((&opened{err: errRefused}).open)+"://h")
	require.ErrorIs(t, err, errRefused)
	own := &locker.Error{Op: "open", Err: errors.New("no such cluster")}
	_, err = locker.Open(t.Context(), scheme((&opened{err: own}).open)+"://h")
	assert.EqualError(t, err, "locker: open: no such cluster")
}

func TestOpen_ofAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errShutdown)
	o := &opened{}
	_, err := locker.Open(ctx, scheme(o.open)+"://h")
	interruptedBy(ctx, t, err)
	assert.Nil(t, o.url)
}

func TestOpen_doesNotChangeTheCallersOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := make([]locker.Option, 1, 8)
		opts[0] = locker.WithTTL(time.Minute)
		_, err := locker.Open(t.Context(), scheme((&opened{}).open)+"://h?ttl=1s&prefix=p", opts...)
		require.NoError(t, err)
		assert.Nil(t, opts[:2][1])
	})
}
