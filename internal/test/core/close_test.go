package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestClose_waitersGetErrClosed(t *testing.T) {
	each(t, map[string]fault{
		"in a pause": {then: func() {}}, "request hangs": hangs, "request hangs, heeds no ctx": {hang: true, ignoresCtx: true},
		"granted later": {request: time.Second, ignoresCtx: true},
	}, func(t *testing.T, b *backend, f fault) {
		c := b.client(t)
		if f.then != nil {
			b.steal("x")
		}
		b.every(acquire, f)
		waiter := testwait.Go(func() error { return c.Mutex("x").Lock(context.Background()) })
		synctest.Wait()
		closed := testwait.Go(c.Close)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-waiter, locker.ErrClosed) }))
		require.NoError(t, <-closed)
		if f.request > 0 {
			assert.Zero(t, b.holder("x"))
		}
	})
}

func TestClose_losesAndReleasesHolds(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		ms := holdMany(t, c, 100)
		closed := c.Closed()
		b.next(release, fault{then: func() {
			assert.True(t, fired(closed), "before anything is released")
			for _, m := range ms {
				assert.True(t, fired(m.Hold().Lost()), "Lost fires before anything is released")
			}
		}})
		assert.False(t, fired(closed))
		require.NoError(t, c.Close())
		for i, m := range ms {
			assert.Zero(t, b.holder(fmt.Sprint(i)))
			assert.Zero(t, m.FencingToken())
			require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
		}
		assert.Len(t, b.calls(release), 100)
	})
}

func TestClose_laterLocksGetErrClosed(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		held, free, lost := c.Mutex("held"), c.Mutex("free"), c.Mutex("lost", locker.WithoutRenewal())
		require.NoError(t, lost.Lock(t.Context()))
		time.Sleep(ttl)
		require.NoError(t, held.Lock(t.Context()))
		require.NoError(t, c.Close())
		for _, m := range []*locker.Mutex{held, free, lost, c.Mutex("new")} {
			require.ErrorIs(t, m.Lock(t.Context()), locker.ErrClosed)
			require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrClosed)
			_, err := m.Acquire(t.Context())
			require.ErrorIs(t, err, locker.ErrClosed)
			require.ErrorIs(t, m.Do(t.Context(), nil), locker.ErrClosed)
		}
		assert.Len(t, b.calls(acquire), 2)
		require.ErrorIs(t, free.Unlock(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, held.Unlock(t.Context()), locker.ErrLost)
		require.ErrorIs(t, lost.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestClose_closesTheDriverOnceAndReturnsItsError(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &fakeDriver{b: b, shut: func() error { return errRefused }}
		c := clientOf(t, d)
		assert.False(t, d.closed)
		err := c.Close()
		require.ErrorIs(t, err, errRefused)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "close", e.Op)
		assert.True(t, d.closed)
		d.closed = false
		require.NoError(t, c.Close(), "a second Close does nothing")
		assert.False(t, d.closed)
	})
}

// A Driver is to close, and to heed its contexts. One that does not keeps Close no longer than
// another.
func TestClose_ofADriverThatHangs(t *testing.T) {
	each(t, map[string]*fakeDriver{"2 holds": {deaf: true}, "has not closed": {}}, func(t *testing.T, b *backend, d *fakeDriver) {
		d.b = b
		c := clientOf(t, d)
		holdMany(t, c, 2)
		closed := false
		d.shut = func() error { closed = true; return nil }
		if d.deaf {
			b.every(release, hangs)
		} else {
			d.shut = func() error { <-b.over; return nil }
		}
		_, want, _ := strings.Cut(strings.ReplaceAll(t.Name(), "_", " "), "/")
		assert.LessOrEqual(t, took(func() { require.ErrorContains(t, c.Close(), want) }), 5*time.Second)
		assert.Equal(t, d.deaf, closed)
		assert.Equal(t, d.deaf, b.holder("0") != 0)
	})
}

// A goroutine for each would be a gigabyte for a Client of many holds that is told to stop.
func TestClose_ofManyHoldsNeedsFewGoroutines(t *testing.T) {
	const holds, few = 10_000, 500
	each(t, map[string]fault{"in order": {reply: time.Millisecond}, "hangs": hangIgnoringCtx}, func(t *testing.T, b *backend, f fault) {
		c := b.client(t, locker.WithTTL(time.Minute))
		holdMany(t, c, holds)
		b.every(release, f)
		before, began := runtime.NumGoroutine(), time.Now()
		closed := testwait.Go(c.Close)
		synctest.Wait()
		require.NotEmpty(t, b.calls(release))
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, few, "goroutines of Close, for %d holds", holds)
		err := <-closed
		assert.LessOrEqual(t, time.Since(began), 5*time.Second)
		assert.Equal(t, f.hang, err != nil)
	})
}

func TestClose_namesTheLocksThatWereNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := holdMany(t, c, 3)[1]
		b.everyOf("1", release, hangs)
		b.next(release, unreachable, unheard) // which are sent again
		thief := b.steal("2")
		err := c.Close()
		require.ErrorContains(t, err, `"1"`)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		assert.NotContains(t, err.Error(), `"0"`)
		assert.Zero(t, b.holder("0"))
		assert.NotContains(t, err.Error(), `"2"`, "it was taken, and is no error")
		assert.Equal(t, thief, b.holder("2"))
	})
}

func TestClose_whileCallsAreUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		ms := holdMany(t, c, 3)
		b.every(release, fault{request: time.Second})
		b.every(extend, fault{request: 2 * time.Second})
		unlocked := testwait.Go(func() error { return ms[0].Unlock(context.Background()) })
		extended := testwait.Go(func() error { return ms[1].Extend(context.Background()) })
		did := testwait.Go(func() error {
			return c.Mutex("y").Do(context.Background(), func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		synctest.Wait()
		require.NoError(t, c.Close())
		require.NoError(t, <-unlocked, "an Unlock that had begun is finished")
		require.ErrorIs(t, <-extended, locker.ErrLost)
		require.ErrorIs(t, <-did, locker.ErrLost)
		for _, name := range []string{"0", "1", "2", "y"} {
			assert.Zero(t, b.holder(name))
		}
	})
}

// Nobody gets a lock while the function that runs under it is still returning.
func TestClose_waitsForWhatRunsUnderAHold(t *testing.T) {
	each(t, map[string]func(c *locker.Client, f func(context.Context)) error{
		"Do": func(c *locker.Client, f func(context.Context)) error {
			return c.Mutex("x").Do(context.Background(), func(ctx context.Context) error { f(ctx); return nil })
		},
		"Context": func(c *locker.Client, f func(context.Context)) error {
			h, err := c.Mutex("x").Acquire(context.Background())
			if err != nil {
				return err
			}
			ctx, cancel := h.Context(context.Background(), time.Second)
			_, other := h.Context(context.Background(), 0)
			other()
			other() // which ends no work but its own
			f(ctx)
			cancel()
			return h.Unlock(context.Background())
		},
	}, func(t *testing.T, b *backend, run func(c *locker.Client, f func(context.Context)) error) {
		b.every(extend, fault{reply: 100 * time.Millisecond})
		c := b.client(t)
		ran := testwait.Go(func() error {
			return run(c, func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(400 * time.Millisecond)
				assert.NotZero(t, b.holder("x"), "while the function returns")
			})
		})
		for len(b.calls(extend)) == 0 { // the answer comes while Close waits, and releases nothing
			time.Sleep(10 * time.Millisecond)
		}
		assert.Less(t, took(func() { require.NoError(t, c.Close()) }), time.Second)
		require.ErrorIs(t, <-ran, locker.ErrLost)
		assert.Zero(t, b.holder("x"))
	})
}

// leaving counts the names that are not to be given back when their session ends.
type leaving struct {
	*lease
	left map[string]int
}

func (l leaving) Leave() { l.left[l.name]++ }

// What does not return is not waited for longer than Close lasts, nor longer than the hold, and
// keeps the lock until it expires.
func TestClose_leavesToExpireWhatDoesNotReturn(t *testing.T) {
	each(t, map[string]time.Duration{"Close": 0, "the hold": life - 2*time.Second}, func(t *testing.T, b *backend, worked time.Duration) {
		left := map[string]int{}
		c := clientOf(t, &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim {
			return leaving{l.(*lease), left}
		}}, locker.WithoutRenewal())
		idle, abandoned := holdMany(t, c, 1)[0], c.Mutex("abandoned")
		require.NoError(t, abandoned.Lock(t.Context()))
		require.NoError(t, abandoned.Hold().Abandon())
		stop := make(chan struct{})
		ran := testwait.Go(func() error {
			return c.Mutex("x").Do(context.Background(), func(context.Context) error { <-stop; return nil })
		})
		synctest.Wait()
		time.Sleep(worked)
		began := time.Now()
		closed := testwait.Go(c.Close)
		time.Sleep(time.Second)
		assert.Zero(t, b.holder("0"), "a hold under which nothing runs is released at once")
		require.ErrorContains(t, <-closed, "has not ended")
		assert.LessOrEqual(t, time.Since(began), min(5*time.Second, life-worked))
		assert.Equal(t, map[string]int{"locker:x": 1, "locker:abandoned": 1}, left)
		require.NoError(t, b.client(t).Mutex("x").Lock(t.Context()))
		assert.GreaterOrEqual(t, time.Since(b.start), life-time.Millisecond, "it had expired")
		close(stop)
		require.ErrorIs(t, <-ran, locker.ErrLost)
		require.ErrorIs(t, idle.Unlock(t.Context()), locker.ErrLost)
	})
}

// A part of the backend that does not answer, or refuses, keeps no hold of the rest taken.
func TestClose_releasesTheOthersFirst(t *testing.T) {
	each(t, map[string]fault{"hangs": hangs, "refuses": unreachable}, func(t *testing.T, b *backend, f fault) {
		const holds = 900
		c := b.client(t, locker.WithTTL(time.Minute))
		holdMany(t, c, holds)
		for i := range holds / 3 {
			b.everyOf(strconv.Itoa(i), release, f)
		}
		closed := testwait.Go(c.Close)
		time.Sleep(2 * time.Second)
		for i := holds / 3; i < holds; i++ {
			require.Zero(t, b.holder(strconv.Itoa(i)), "hold %d is still taken", i)
		}
		err := <-closed
		require.Error(t, err)
		assert.Equal(t, f.err != nil, errors.Is(err, errRefused))
	})
}

// A clean-up that cannot reach the backend has its whole TTL, but must not hold up Close that
// long. Close ends the pause between two tries that is under way, and not those that follow.
func TestClose_hurriesCleanUpThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.next(acquire, unheard, unheard, unheard)
		b.every(release, unreachable)
		c := b.client(t)
		require.ErrorIs(t, c.Mutex("x").Lock(t.Context()), errRefused)
		synctest.Wait()
		require.Len(t, b.calls(release), 1)
		assert.LessOrEqual(t, took(func() { require.NoError(t, c.Close()) }), time.Second)
		at := b.times(release)
		require.Greater(t, len(at), 2)
		assert.Equal(t, at[0], at[1], "Close ends the pause")
		for _, gap := range gaps(at[1:]) {
			assert.GreaterOrEqual(t, gap, 25*time.Millisecond, "the pauses after that")
		}
	})
}

func TestClose_endsAnUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithTTL(time.Minute))
		require.NoError(t, m.Lock(t.Context()))
		b.every(release, hangs)
		unlocked := testwait.Go(func() error { return m.Unlock(context.Background()) })
		time.Sleep(time.Second)
		require.NoError(t, c.Close(), "it has waited for nothing in vain")
		require.Error(t, <-unlocked)
	})
}
