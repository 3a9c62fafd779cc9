package core_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

var errShutdown = errors.New("shutting down")

// ending is a context that ends after d, with cause errShutdown.
func ending(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, errShutdown)
	t.Cleanup(cancel)
	return ctx
}

// interruptedBy asserts that err is what a call returns that ctx has ended.
func interruptedBy(ctx context.Context, t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ctx.Err())
	require.ErrorIs(t, err, context.Cause(ctx))
}

func TestLock_ofAnEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		m := b.client(t).Mutex("x")
		interruptedBy(ctx, t, m.Lock(ctx))
		interruptedBy(ctx, t, m.TryLock(ctx))
		synctest.Wait()
		assert.Empty(t, b.calls(acquire))
	})
}

func TestLock_ctxEndsWhileTheRequestIsOut(t *testing.T) {
	each(t, map[string]fault{
		"hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "granted later": {request: 3 * time.Second, ignoresCtx: true},
		"granted, reply on its way": {reply: 3 * time.Second, ignoresCtx: true}, "granted, reply given up": {hang: true},
	}, func(t *testing.T, b *backend, f fault) {
		b.next(acquire, f)
		m, ctx := b.client(t).Mutex("x"), ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() {
			err := m.Lock(ctx)
			interruptedBy(ctx, t, err)
			assert.NotErrorIs(t, err, locker.ErrHeld)
		}))
		assert.Zero(t, m.FencingToken())
		time.Sleep(3 * time.Second)
		assert.Zero(t, b.holder("x"), "nothing is left behind")
	})
}

// The phases of a wait, by what the backend did before ctx ended.
func TestLock_ctxEndsWhileWaiting(t *testing.T) {
	held := fault{}
	for name, c := range map[string]struct {
		answers []fault
		then    fault
		held    bool
		refused bool
	}{
		"in a pause after ErrHeld":                 {then: held, held: true},
		"while a request is out":                   {answers: []fault{held, held}, then: hangs, held: true},
		"while a request that ignores ctx is out":  {answers: []fault{held, held}, then: hangIgnoringCtx, held: true},
		"in a pause after a failure":               {answers: []fault{held, held}, then: unreachable, refused: true},
		"while a request is out after a failure":   {answers: []fault{held, unreachable}, then: hangs, refused: true},
		"in a pause after a failure, then ErrHeld": {answers: []fault{held, unreachable, unreachable}, then: held, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				b.steal("x")
				b.next(acquire, c.answers...)
				b.every(acquire, c.then)
				ctx := ending(t, 3*time.Second)
				err := b.client(t).Mutex("x").Lock(ctx)
				assert.Equal(t, 3*time.Second, time.Since(b.start))
				interruptedBy(ctx, t, err)
				assert.Equal(t, c.held, errors.Is(err, locker.ErrHeld), "%v", err)
				assert.Equal(t, c.refused, errors.Is(err, errRefused), "%v", err)
			})
		})
	}
}

func TestLock_ctxEndsInTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		answers  []error
		returned error // by the Driver then; nil: ctx.Err()
		held     bool
		refused  bool
	}{
		"nobody has answered yet":                {},
		"the last answer was ErrHeld":            {answers: []error{errRefused, locker.ErrHeld}, held: true},
		"the last answer was not":                {answers: []error{locker.ErrHeld, errRefused}, refused: true},
		"the Driver returns an error of its own": {answers: []error{locker.ErrHeld}, returned: errRefused, held: true},
		"and nobody has answered":                {returned: errRefused, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				d, left := &scripted{fakeDriver: &fakeDriver{b: b}}, false
				d.queue = func(ctx context.Context, _ driver.Request, answered func(error)) (driver.Lease, error) {
					for _, a := range c.answers {
						answered(a)
					}
					<-ctx.Done()
					left = true
					return nil, cmp.Or(c.returned, ctx.Err())
				}
				ctx := ending(t, time.Hour)
				err := clientOf(t, d).Mutex("x").Lock(ctx)
				interruptedBy(ctx, t, err)
				assert.Equal(t, c.held, errors.Is(err, locker.ErrHeld), "%v", err)
				assert.Equal(t, c.refused, errors.Is(err, errRefused), "%v", err)
				synctest.Wait()
				assert.True(t, left, "the waiter leaves the queue")
			})
		})
	}
}

func TestLock_inAQueueReturnsWhatTheDriverSays(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &scripted{fakeDriver: &fakeDriver{b: b}}
		m := clientOf(t, d).Mutex("x")
		d.queue = func(context.Context, driver.Request, func(error)) (driver.Lease, error) { return nil, errRefused }
		require.ErrorIs(t, m.Lock(t.Context()), errRefused)
		d.queue = func(ctx context.Context, req driver.Request, _ func(error)) (driver.Lease, error) {
			time.Sleep(time.Hour) // longer than any attempt may take
			return d.fakeDriver.Acquire(ctx, req)
		}
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, life, time.Until(m.Deadline()))
	})
}

func TestLock_ofABackendThatDoesNotAnswerIsATimeout(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(acquire, hangs)
		err := b.client(t).Mutex("x").TryLock(t.Context())
		noErrorIs(t, err, context.DeadlineExceeded)
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout(), "as net.Error has it")
	})
}
