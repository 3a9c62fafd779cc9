package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A deadline counts from before the request, or from what the lease says if that is less, and takes
// off the allowance for drift. Half a TTL is enough.
func TestLock_deadlineCountsFromBeforeTheRequest(t *testing.T) {
	type request struct {
		f         fault
		ttl, want time.Duration
	}
	each(t, map[string]request{
		"fast":            {fault{}, ttl, life},
		"a slow request":  {fault{request: 2 * time.Second}, ttl, life},
		"a slow reply":    {fault{reply: 2 * time.Second}, ttl, life},
		"just in time":    {fault{reply: ttl/2 - drift}, ttl, life},
		"an older lease":  {fault{age: 3 * time.Second, reply: time.Second}, ttl, life - 3*time.Second},
		"a TTL of 5 ms":   {fault{}, 5 * time.Millisecond, 2950 * time.Microsecond},
		"a TTL of 1 s":    {fault{}, time.Second, 988 * time.Millisecond},
		"a TTL of 30 s":   {fault{}, 30 * time.Second, 29698 * time.Millisecond},
		"a TTL of 1 hour": {fault{}, time.Hour, 59*time.Minute + 24*time.Second - 2*time.Millisecond},
	}, func(t *testing.T, b *backend, c request) {
		b.next(acquire, c.f)
		m := b.locked(t, locker.WithTTL(c.ttl), locker.WithoutRenewal())
		assert.Equal(t, c.want, m.Hold().Deadline().Sub(b.start))
	})
}

func TestLock_countsForItselfWhatALeaseClaims(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(acquire, fault{reply: time.Second})
		m := lockedOf(t, lasting(b, forHours), locker.WithoutRenewal())
		assert.Equal(t, life, m.Hold().Deadline().Sub(b.start))
		b.every(extend, fault{reply: time.Second})
		sent := time.Now()
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, life, m.Hold().Deadline().Sub(sent))
	})
}

func TestLock_withLessThanHalfATTLLeftIsGivenBack(t *testing.T) {
	each(t, map[string]fault{
		"by the clock":             {reply: ttl/2 - drift + 1},
		"by the lease":             {age: ttl/2 - drift + 1},
		"after a slow way to it":   {request: ttl/2 - drift + 1},
		"by far, and heeds no ctx": {request: 8 * time.Second, ignoresCtx: true},
	}, func(t *testing.T, b *backend, f fault) {
		b.next(acquire, f)
		m := b.client(t).Mutex("x")
		noErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		assert.Zero(t, m.FencingToken())
		time.Sleep(f.request)
		synctest.Wait()
		assert.NotEmpty(t, b.calls(release))
		assert.Zero(t, b.holder("x"))
		if f.ignoresCtx {
			return // a Lock gives up, too: nobody answers for half a TTL
		}
		b.next(acquire, f)
		require.NoError(t, m.Lock(t.Context()), "one that waits asks again")
	})
}

func TestLock_ofAHungBackendFailsAfterHalfATTL(t *testing.T) {
	each(t, hanging, func(t *testing.T, b *backend, f fault) {
		b.every(acquire, f)
		m := b.client(t).Mutex("x")
		for _, lock := range []func(context.Context) error{m.Lock, m.TryLock} {
			assert.Equal(t, ttl/2, took(func() {
				err := lock(context.Background())
				noErrorIs(t, err, locker.ErrHeld, context.DeadlineExceeded)
				timeout, ok := errors.AsType[interface {
					error
					Timeout() bool
				}](err)
				assert.True(t, ok && timeout.Timeout(), "as net.Error has it")
			}))
		}
	})
}

// The connection that a client library had may have broken before it is used. A failure that lasts
// is returned soon.
func TestLock_firstRequestThatFailsAtOnceIsMadeAgain(t *testing.T) {
	slow := fault{request: 100 * time.Millisecond, lost: true, err: errRefused}
	unsupported := fault{lost: true, err: locker.ErrUnsupported}
	type outcome struct {
		faults []fault
		asked  int
		err    error
	}
	each(t, map[string]outcome{
		"sent into a broken connection":  {[]fault{unreachable}, 2, nil},
		"its reply is lost, twice":       {[]fault{unheard, unheard}, 3, nil},
		"the backend is unreachable":     {[]fault{unreachable, unreachable, unreachable}, 3, errRefused},
		"and it took a while":            {[]fault{slow}, 1, errRefused},
		"the second takes a while":       {[]fault{unreachable, slow}, 2, errRefused},
		"it cannot succeed":              {[]fault{unsupported}, 1, locker.ErrUnsupported},
		"nor of a Driver that is closed": {[]fault{{lost: true, err: locker.ErrClosed}}, 1, locker.ErrClosed},
	}, func(t *testing.T, b *backend, c outcome) {
		for i, lock := range []func(*locker.Mutex, context.Context) error{(*locker.Mutex).Lock, (*locker.Mutex).TryLock} {
			b.next(acquire, c.faults...)
			m, began := b.client(t, locker.WithBackoff(ttl, ttl)).Mutex(strconv.Itoa(i)), time.Now()
			err := lock(m, context.Background())
			require.ErrorIs(t, err, c.err)
			require.NotErrorIs(t, err, locker.ErrHeld)
			assert.Len(t, b.calls(acquire), c.asked*(i+1))
			assert.LessOrEqual(t, time.Since(began), 30*time.Millisecond+slow.request)
		}
	})
}

// An outage is one on every backend, whether its client library fails at once or waits.
func TestLock_ridesOutAShortOutageAtFirstToo(t *testing.T) {
	each(t, map[string]error{
		"no connection": &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"a broken one":  fmt.Errorf("reading a reply: %w", io.EOF),
	}, func(t *testing.T, b *backend, err error) {
		down := fault{lost: true, err: err}
		b.every(acquire, down)
		m := b.client(t).Mutex("x")
		assert.InDelta(t, ttl/2, took(func() { require.ErrorIs(t, m.Lock(context.Background()), err) }), float64(ttl/10))
		assert.Less(t, len(b.calls(acquire)), 100, "it does not ask without a pause")
		assert.LessOrEqual(t, took(func() { require.ErrorIs(t, m.TryLock(context.Background()), err) }), 30*time.Millisecond)

		locked := make(chan error, 1)
		go func() { locked <- m.Lock(context.Background()) }()
		time.Sleep(ttl / 4)
		b.every(acquire, fault{})
		require.NoError(t, <-locked)
	})
}

// A pause that is longer than what is left of the ride does not delay the answer.
func TestLock_ridesOutAnOutageWithALongBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		down := fault{lost: true, err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}
		b.every(acquire, down)
		m := b.client(t, locker.WithBackoff(10*ttl, 20*ttl)).Mutex("x")
		assert.InDelta(t, ttl/2, took(func() { require.Error(t, m.Lock(context.Background())) }), float64(ttl/50))
		assert.Less(t, len(b.calls(acquire)), 20, "it does not ask without a pause")
		locked := testwait.Go(func() error { return m.Lock(context.Background()) })
		time.Sleep(ttl / 3)
		b.every(acquire, fault{})
		require.NoError(t, <-locked, "it asks while there is time")
	})
}

// The request whose outcome is unknown may yet take the lock.
func TestTryLock_thatIsHeldAfterAFailureIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.next(acquire, fault{err: errRefused, then: func() { b.steal("x") }})
		require.ErrorIs(t, b.client(t).Mutex("x").TryLock(t.Context()), locker.ErrHeld)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
		require.ErrorIs(t, b.client(t).Mutex("x").TryLock(t.Context()), locker.ErrHeld)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1, "nothing is left of a claim that heard nothing else")
	})
}

// The requests of an outage have half a TTL together. Why they failed is in the error: what the
// latest one has said that has said more than that nobody answers.
func TestLock_waiterDoesNotRideOutALongOutage(t *testing.T) {
	silent := fault{lost: true, err: noanswer.Error("silence")}
	starting := fault{lost: true, err: errors.New("the server starts")}
	cut := fault{lost: true, err: context.DeadlineExceeded} // by the Driver, before the end of its context
	each(t, map[string][]fault{
		"refuses": {unreachable}, "says something else first": {starting, unreachable},
		"says nothing first": {silent, unreachable}, "says nothing then": {unreachable, silent},
		"is cut short then": {unreachable, cut},
	}, func(t *testing.T, b *backend, failures []fault) {
		for _, f := range failing {
			b.steal("x")
			sent := len(b.calls(acquire))
			b.next(acquire, append([]fault{{}}, failures...)...)
			b.every(acquire, f)
			err := b.client(t).Mutex("x").Lock(context.Background())
			require.ErrorIs(t, err, errRefused)
			require.NotErrorIs(t, err, locker.ErrHeld)
			lastAnswer := b.times(acquire)[sent]
			assert.InDelta(t, ttl/2, time.Since(b.start)-lastAnswer, float64(300*time.Millisecond))
		}
	})
}

// A lock that is free costs no goroutine, whether or not its context can end.
func TestLock_startsNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		before := 0
		d := scripted(b, func(ctx context.Context, _ *lease) (time.Duration, error) {
			own, cancel := context.WithCancel(ctx) // as client libraries do
			defer cancel()
			require.NoError(t, own.Err())
			assert.Equal(t, before, runtime.NumGoroutine())
			return 0, locker.ErrHeld
		})
		c := clientOf(t, d)
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			before = runtime.NumGoroutine()
			require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
		}
	})
}

func TestLock_eachAnswerStartsTheRideAnew(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.steal("x")
		locked := testwait.Go(func() error { return b.client(t).Mutex("x").Lock(t.Context()) })
		for range 3 {
			b.every(acquire, fault{})
			time.Sleep(time.Second)
			b.every(acquire, unreachable)
			time.Sleep(ttl/2 - 300*time.Millisecond)
		}
		b.every(acquire, fault{})
		b.free("x")
		require.NoError(t, <-locked)
	})
}

// A session that was about to end may be heard of again, by another lease, before it does.
func TestLock_cleanUpGoesOnIfTheSessionDoes(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		began := time.Now()
		heard := func(driver.Claim) time.Duration {
			if left := ttl - time.Since(began); left > time.Millisecond {
				return left
			}
			return ttl
		}
		b.next(acquire, unheard, unheard, unheard)
		b.every(release, unreachable)
		require.Error(t, clientOf(t, lasting(b, heard)).Mutex("x").Lock(t.Context()))
		time.Sleep(ttl + time.Millisecond)
		b.every(release, fault{})
		asked := len(b.calls(release))
		time.Sleep(2 * time.Second)
		assert.Len(t, b.calls(release), asked+1)
	})
}

func TestLock_pausesBetweenAttemptsAsTheBackoffSays(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.steal("x")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		m := b.client(t, locker.WithBackoff(40*time.Millisecond, time.Second)).Mutex("x")
		require.ErrorIs(t, m.Lock(ctx), locker.ErrHeld)
		at, bound, different := b.times(acquire), 40*time.Millisecond, map[time.Duration]bool{}
		for i := range at[1:] {
			pause := at[i+1] - at[i]
			assert.GreaterOrEqual(t, pause, bound/2)
			assert.LessOrEqual(t, pause, bound)
			bound = min(2*bound, time.Second)
			different[pause] = true
		}
		assert.Greater(t, len(different), 10, "pauses differ at random")
	})
}

func TestLock_asksForWhatWasSet(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithPrefix("app"), locker.WithMetadata("host 1"), locker.WithTTL(20*time.Second))
		own := c.Mutex("orders/42", locker.WithTTL(time.Minute), locker.WithoutRenewal())
		other := c.Mutex("other", locker.WithMetadata("job 7"))
		require.NoError(t, own.Lock(t.Context()))
		require.NoError(t, other.TryLock(t.Context()))
		sent := b.calls(acquire)
		assert.Equal(t, driver.Request{Name: "app:orders/42", Metadata: "host 1", TTL: time.Minute}, sent[0].req)
		assert.Equal(t, driver.Request{Name: "app:other", Metadata: "job 7", TTL: 20 * time.Second}, sent[1].req, "the last TTL counts")
		time.Sleep(time.Minute)
		assert.Zero(t, own.FencingToken())
		assert.NotZero(t, other.FencingToken(), "options of one Mutex are its own")
	})
}

func TestLock_ofADriverThatBreaksItsWord(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := scripted(b, func(_ context.Context, c *lease) (time.Duration, error) {
			c.there = true
			return 0, nil
		})
		require.ErrorContains(t, clientOf(t, d).Mutex("x").TryLock(t.Context()), "token 0")
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
	})
}

// That another owner had the lock is an answer until it is granted, and no longer.
func TestLock_inASilenceAfterAContendedHoldIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, &fakeDriver{b: b})
		m := c.Mutex("x")
		b.steal("x")
		first := testwait.Go(func() error { return m.Lock(t.Context()) })
		time.Sleep(time.Second)
		b.free("x")
		require.NoError(t, <-first)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		second := testwait.Go(func() error { return m.Lock(ctx) })
		time.Sleep(time.Second)
		b.every(acquire, hangs)
		require.NoError(t, m.Unlock(t.Context()))
		err := <-second
		require.ErrorIs(t, err, context.DeadlineExceeded)
		noErrorIs(t, err, locker.ErrHeld)
	})
}
