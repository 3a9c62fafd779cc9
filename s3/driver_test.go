package s3

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/test/claims"
)

func TestTokens_riseOverReleaseExpiryAndDeletion(t *testing.T) {
	f, _, d := onFake(t)
	first := take(t, d, "name")
	require.NoError(t, first.Release(t.Context()))
	second := take(t, d, "name")
	assert.Greater(t, second.Token(), first.Token())
	held(t, d, "name")
	f.forward(ttl + time.Second)
	third := take(t, d, "name")
	assert.Greater(t, third.Token(), second.Token(), "of a hold that has expired")
	for _, key := range f.keys() {
		f.remove(key)
	}
	f.forward(time.Second)
	fourth := take(t, d, "name")
	assert.Greater(t, fourth.Token(), third.Token(), "of an object that was deleted")
	require.ErrorIs(t, third.Extend(t.Context(), ttl), locker.ErrLost)
	require.ErrorIs(t, third.Release(t.Context()), locker.ErrLost)
	held(t, d, "name")
}

// The store's times are cut to seconds: a hold is over when they are a second more than the TTL
// apart.
func TestExpiry_neverEarly(t *testing.T) {
	f, _, d := onFake(t)
	f.set(time.Date(2030, 1, 1, 0, 0, 0, 999e6, time.UTC))
	take(t, d, "name")
	f.set(time.Date(2030, 1, 1, 0, 0, 10, 998e6, time.UTC)) // cut, that is 10 s after 0 s
	held(t, d, "name")
	f.set(time.Date(2030, 1, 1, 0, 0, 11, 0, time.UTC))
	take(t, d, "name")
}

func TestAsk_whoseReplyWasLostIsGrantedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		require.NoError(t, take(t, d, "other").Release(t.Context()))
		lose(r, 1, http.MethodPut)
		c := d.Claim(request("name"))
		_, err := c.Ask(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, locker.ErrHeld)
		held(t, d, "name")
		_, err = c.Ask(t.Context())
		require.NoError(t, err)
		assert.Greater(t, c.Validity(), ttl*9/10)
		state, err := d.Inspect(t.Context(), "name")
		require.NoError(t, err)
		assert.Equal(t, c.Token(), state.Token)
		require.NoError(t, c.Release(t.Context()))
	})
}

// A request that was sent again on its way is refused what it has done.
func TestWrites_thatAreSentTwice(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		require.NoError(t, take(t, d, "other").Release(t.Context()))
		twice(r)
		c := take(t, d, "name")
		held(t, d, "name")
		require.NoError(t, c.Extend(t.Context(), ttl))
		require.NoError(t, c.Release(t.Context()))
		require.NoError(t, take(t, d, "name").Release(t.Context()))
	})
}

func TestRelease_whoseReplyWasLost(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		c := take(t, d, "name")
		lose(r, 1, http.MethodPut)
		require.Error(t, c.Release(t.Context()))
		require.NoError(t, c.Release(t.Context()))
		next := take(t, d, "name")
		require.ErrorIs(t, c.Release(t.Context()), locker.ErrLost, "nobody can tell any more")
		require.NoError(t, next.Extend(t.Context(), ttl))
	})
}

// A take that arrives after Release takes nothing, whether there was an object or not.
func TestLate_takeAfterRelease(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		require.NoError(t, take(t, d, "released before").Release(t.Context()))
		for _, name := range []string{"released before", "new"} {
			c := d.Claim(request(name))
			arrive := delayed(r, func() {
				_, err := c.Ask(t.Context())
				require.Error(t, err)
			})
			require.NoError(t, c.Release(t.Context()), name)
			assert.Equal(t, http.StatusPreconditionFailed, arrive(), name)
			next := take(t, d, name)
			require.NoError(t, next.Release(t.Context()))
		}
	})
}

// A hold that is over here is not extended, though the store would.
func TestExtend_afterExpiry(t *testing.T) {
	_, _, d := onFake(t)
	short := request("name")
	short.TTL = 3 * time.Second
	c := d.Claim(short)
	_, err := c.Ask(t.Context())
	require.NoError(t, err)
	patience.Until(t, "the hold is over", func() bool { return c.Validity() <= 0 })
	require.ErrorIs(t, c.Extend(t.Context(), short.TTL), locker.ErrLost)
	require.ErrorIs(t, c.Release(t.Context()), locker.ErrLost)
	take(t, d, "name")
}

// Renewals may run at once, and beside a call of the application.
func TestExtend_severalAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, _ *relay, d *backend) {
		c := take(t, d, "name")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.NoError(t, c.Extend(t.Context(), ttl)) })
		}
		all.Wait()
		require.NoError(t, c.Release(t.Context()))
	})
}

// An answer such as 409 or 503 says nothing of the lock.
func TestAsk_ofABusyStoreLooksAgain(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			_, r, d := onFake(t)
			require.NoError(t, take(t, d, "other").Release(t.Context()))
			var left atomic.Int32
			left.Store(2)
			r.on(method, func(w http.ResponseWriter, _ *http.Request) (busy bool) {
				if busy = left.Add(-1) >= 0; busy {
					answer(w, status, "Busy")
				}
				return busy
			})
			c := take(t, d, "name")
			left.Store(1000)
			_, err := claims.Take(t.Context(), d, request("new"))
			require.Error(t, err)
			require.NotErrorIs(t, err, locker.ErrHeld, "%s %d", method, status)
			require.True(t, noanswer.Outage(err), "a Lock goes on: %v", err)
			left.Store(2)
			require.NoError(t, c.Extend(t.Context(), ttl))
			left.Store(2)
			require.NoError(t, c.Release(t.Context()))
		}
	}
}

func TestAsk_refuses(t *testing.T) {
	_, _, d := onFake(t)
	for _, ttl := range []time.Duration{time.Second, 2999 * time.Millisecond, 3500 * time.Millisecond, 13 * time.Hour} {
		require.ErrorIs(t, d.CheckTTL(ttl), locker.ErrUnsupported)
	}
	require.NoError(t, d.CheckTTL(3*time.Second))
	shared := request("name")
	shared.Shared = true
	_, err := d.Claim(shared).Ask(t.Context())
	require.ErrorIs(t, err, locker.ErrUnsupported)
	assert.Equal(t, time.Minute, d.DefaultTTL())
}

func TestNames_andMetadataOfAnyKind(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		for _, name := range []string{"a/b", "a", "..", "a\x00b", strings.Repeat("ü", 300), strings.Repeat("ü", 301), "=x", " "} {
			req := request(name)
			req.Metadata = "\xff\x00" + name
			c := d.Claim(req)
			_, err := c.Ask(t.Context())
			require.NoError(t, err, "%.20q", name)
			state, err := d.Inspect(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, req.Metadata, state.Holder.Metadata)
			var by *driver.HeldError
			_, err = d.Claim(request(name)).Ask(t.Context())
			require.ErrorAs(t, err, &by)
			assert.Equal(t, req.Metadata, by.Holder.Metadata)
		}
	})
}

func TestForceRelease(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		require.ErrorIs(t, d.ForceRelease(t.Context(), "name", driver.State{Held: true, Token: 1}), locker.ErrNotHeld)
		c := take(t, d, "name")
		shown, err := d.Inspect(t.Context(), "name")
		require.NoError(t, err)
		assert.True(t, shown.Held)
		assert.LessOrEqual(t, shown.Left, ttl)
		other := shown
		other.Token++
		require.ErrorIs(t, d.ForceRelease(t.Context(), "name", other), locker.ErrHeld)
		require.NoError(t, d.ForceRelease(t.Context(), "name", shown))
		require.ErrorIs(t, c.Extend(t.Context(), ttl), locker.ErrLost)
		require.ErrorIs(t, c.Release(t.Context()), locker.ErrLost)
		next := take(t, d, "name")
		assert.Greater(t, next.Token(), c.Token())
		require.ErrorIs(t, d.ForceRelease(t.Context(), "name", shown), locker.ErrHeld)
	})
}

// What a lock costs, as docs/backends/s3.md has it.
func TestCounts(t *testing.T) {
	onEach(t, func(t *testing.T, r *relay, d *backend) {
		first := r.count(func() { require.NoError(t, take(t, d, "name").Release(t.Context())) })
		assert.Equal(t, map[string]int{"GET": 1, "PUT": 6, "DELETE": 2}, first, "with the self-test")
		for _, name := range []string{"name", "new"} {
			var c driver.Claim
			assert.Equal(t, map[string]int{"GET": 1, "PUT": 1}, r.count(func() { c = take(t, d, name) }))
			assert.Equal(t, map[string]int{"GET": 1}, r.count(func() { held(t, d, name) }))
			assert.Equal(t, map[string]int{"GET": 1, "PUT": 1}, r.count(func() { require.NoError(t, c.Extend(t.Context(), ttl)) }))
			assert.Equal(t, map[string]int{"PUT": 1}, r.count(func() { require.NoError(t, c.Release(t.Context())) }))
		}
		another := NewDriver(r.client(t), "bucket", "")
		assert.Equal(t, map[string]int{"GET": 1, "PUT": 1}, r.count(func() { take(t, another, rand.Text()) }), "the self-test is the bucket's")
		require.NoError(t, another.Close())
		assert.Empty(t, r.count(func() { require.NoError(t, d.Claim(request("never asked")).Release(t.Context())) }))
	})
}

// Waiters look at intervals that grow to 2 s, each with a jitter of its own.
func TestPauses(t *testing.T) {
	f, _, d := onFake(t)
	long := request("name")
	long.TTL = time.Hour
	start := time.Now()
	f.set(start)
	_, err := d.Claim(long).Ask(t.Context())
	require.NoError(t, err)
	waiter := d.Claim(long)
	var pauses []time.Duration
	for range 20 {
		next, err := waiter.Ask(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
		pauses = append(pauses, next)
	}
	assert.Less(t, pauses[0], 110*time.Millisecond)
	for _, p := range pauses[12:] {
		assert.GreaterOrEqual(t, p, time.Second)
		assert.LessOrEqual(t, p, 2*time.Second)
	}
	assert.NotEqual(t, pauses[18], pauses[19])
	f.set(start.Add(time.Hour))
	next, err := waiter.Ask(t.Context())
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.LessOrEqual(t, next, 200*time.Millisecond, "the hold is about to expire")
}

// A store may answer a read with the time, the ETag or the text of another write.
func TestAsk_ofAReadThatHasMetAWrite(t *testing.T) {
	f, r, d := onFake(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	released := f.text()
	holder := take(t, d, "name")
	for what, change := range map[string]func(*httptest.ResponseRecorder){
		"its time": func(said *httptest.ResponseRecorder) {
			said.Header().Set("Last-Modified", time.Now().Add(-24*time.Hour).UTC().Format(http.TimeFormat))
		},
		"its ETag": setETag,
		"its text": func(said *httptest.ResponseRecorder) { said.Body = bytes.NewBuffer(released) },
	} {
		mangle(r, 1, http.MethodGet, change)
		held(t, d, "name")
		require.NoError(t, holder.Extend(t.Context(), ttl), what)
	}
}

// A redirect turns a write into a read, or leads it to another store, with a session's token: it is
// no answer.
func TestRedirects_areNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		elsewhere.Add(1)
		w.Header().Set("ETag", foreign)
	}))
	defer other.Close()
	r := relayTo(t, newFake())
	for _, client := range []*awss3.Client{r.client(t), r.client(t, func(o *awss3.Options) { o.HTTPClient = awshttp.NewBuildableClient() })} {
		d := NewDriver(client, "bucket", rand.Text())
		r.answer(nil)
		holder := take(t, d, "held")
		for _, status := range []int{301, 302, 303, 307, 308} {
			r.answer(func(w http.ResponseWriter, request *http.Request) {
				http.Redirect(w, request, other.URL+request.URL.Path+"?hidden", status)
			})
			for _, err := range []error{asked(t, d, "name"), holder.Extend(t.Context(), ttl), holder.Release(t.Context())} {
				require.ErrorContains(t, err, "redirects to "+other.URL+", and redirects are not followed", status)
				require.NotErrorIs(t, err, locker.ErrHeld)
				require.NotErrorIs(t, err, locker.ErrLost)
				require.NotContains(t, err.Error(), "hidden")
			}
		}
		require.NoError(t, d.Close())
	}
	assert.Zero(t, elsewhere.Load())
}

func asked(t testing.TB, d driver.Driver, name string) error {
	t.Helper()
	_, err := d.Claim(request(name)).Ask(t.Context())
	return err
}

// A write that is answered with the ETag of something else has an unknown outcome.
func TestWrites_whoseAnswerIsAboutSomethingElse(t *testing.T) {
	_, r, d := onFake(t)
	holder := take(t, d, "held")
	c := d.Claim(request("not done"))
	r.on(http.MethodPut, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("ETag", foreign)
		return true
	})
	for _, err := range []error{asked(t, d, "not done"), holder.Extend(t.Context(), ttl), holder.Release(t.Context())} {
		require.True(t, noanswer.Outage(err), "%v", err)
	}
	mangle(r, math.MaxInt32, http.MethodPut, setETag)
	_, err := c.Ask(t.Context())
	require.NoError(t, errors.Join(err, holder.Extend(t.Context(), ttl), holder.Release(t.Context())), "the store has done it")
	r.answer(nil)
	require.NoError(t, c.Extend(t.Context(), ttl), "with the ETag that a read has shown")
}

// After a change of the bucket's encryption no ETag is an MD5 any more.
func TestETags_thatAreNoDigestsAnyMore(t *testing.T) {
	f, r, d := onFake(t)
	holder := take(t, d, "before")
	f.encrypt()
	require.NoError(t, holder.Extend(t.Context(), ttl))
	held(t, d, "before")
	c := take(t, d, "after")
	held(t, d, "after")
	require.NoError(t, c.Extend(t.Context(), ttl))
	require.NoError(t, errors.Join(c.Release(t.Context()), holder.Release(t.Context())))
	require.NoError(t, errors.Join(take(t, d, "before").Release(t.Context()), take(t, d, "after").Release(t.Context())))
	assert.False(t, d.store.found.Load().digests, "each write would need two reads more")
	r.on(http.MethodPut, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("ETag", foreign)
		_, _ = io.WriteString(w, "<html>")
		return true
	})
	require.True(t, noanswer.Outage(asked(t, d, "page")), "a proxy has answered, and no store")
}

// Releases begin a sweep, one at a time, while the Driver is closed: the race detector sees the
// others.
func TestClose_whileReleasesSweep(t *testing.T) {
	for range 20 {
		_, _, d := onFake(t)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for d.open.Err() == nil {
					d.sweepIfDue()
				}
			})
		}
		time.Sleep(time.Millisecond)
		require.NoError(t, d.Close())
		all.Wait()
	}
}

// A store that stops heeding conditions, or one node of several, lets two take a lock: the first to
// renew sees the other, and the store is tested anew.
func TestExtend_seesAnotherOwner(t *testing.T) {
	_, r, d := onFake(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	a, b := d.Claim(request("name")), d.Claim(request("name"))
	r.on(http.MethodPut, func(_ http.ResponseWriter, request *http.Request) bool {
		r.answer(nil)
		_, err := a.Ask(t.Context())
		assert.NoError(t, err)
		request.Header.Del("If-Match")
		return false
	})
	_, err := b.Ask(t.Context())
	require.NoError(t, err, "both have it")
	without(t, r, "If-Match")
	require.ErrorIs(t, a.Extend(t.Context(), ttl), locker.ErrLost)
	require.NoError(t, b.Extend(t.Context(), ttl))
	require.ErrorContains(t, asked(t, d, "another"), "ignores If-Match")
	r.answer(nil)
	require.NoError(t, asked(t, d, "another"), "it is tested each time then")
}

// What a store answers for what it cannot do, or forbids, is final, and says what to do.
func TestErrors_thatAreFinal(t *testing.T) {
	hint := "without the right s3:ListBucket"
	for _, c := range []struct {
		method, code string
		status       int
		is           error
		hint         bool
	}{
		{http.MethodPut, "NotImplemented", http.StatusNotImplemented, locker.ErrUnsupported, false},
		{http.MethodGet, "AccessDenied", http.StatusForbidden, nil, true},
		{http.MethodPut, "AccessDenied", http.StatusForbidden, nil, false},
		{http.MethodGet, "SignatureDoesNotMatch", http.StatusForbidden, nil, false},
	} {
		_, r, d := onFake(t)
		take(t, d, "other")
		r.on(c.method, func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, c.status, c.code)
			return true
		})
		err := asked(t, d, "name")
		require.ErrorContains(t, err, c.code)
		assert.Equal(t, c.hint, strings.Contains(err.Error(), hint), "%v", err)
		assert.False(t, noanswer.Outage(err), "%v", err)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
	}
}

// A bucket with Object Lock refuses a write without a checksum.
func TestWrites_haveAChecksum(t *testing.T) {
	r := relayTo(t, newFake())
	r.on(http.MethodPut, func(_ http.ResponseWriter, request *http.Request) bool {
		text, err := io.ReadAll(request.Body)
		assert.NoError(t, err)
		sum := md5.Sum(text)
		assert.Equal(t, base64.StdEncoding.EncodeToString(sum[:]), request.Header.Get("Content-MD5"))
		request.Body = io.NopCloser(bytes.NewReader(text))
		return false
	})
	require.NoError(t, take(t, r.driver(t), "name").Release(t.Context()))
}

// Some stores refuse If-None-Match: * where a deletion has left a marker.
func TestDeleteMarkers(t *testing.T) {
	f := newFake()
	f.markers = map[string]bool{}
	r := relayTo(t, f)
	d := r.driver(t)
	require.NoError(t, take(t, d, "name").Release(t.Context()))
	f.forward(25 * time.Hour)
	require.NoError(t, d.sweep(t.Context()))
	require.NoError(t, take(t, d, "name").Release(t.Context()), "a sweep leaves no marker")
	for _, key := range f.keys() {
		f.remove(key)
	}
	require.ErrorContains(t, asked(t, d, "name"), "name.lock: the store shows no object there and refuses a new one")
}
