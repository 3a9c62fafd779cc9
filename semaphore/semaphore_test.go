package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	"github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/semaphore"
)

const name = "exports"

func of(t *testing.T, n int, opts ...locker.Option) *semaphore.Semaphore {
	t.Helper()
	return semaphore.New(locktest.New(t, opts...).Client, name, n)
}

// take has n permits, of s.
func take(t *testing.T, s *semaphore.Semaphore, n int) []*semaphore.Permit {
	t.Helper()
	var permits []*semaphore.Permit
	for range n {
		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		permits = append(permits, p)
	}
	return permits
}

func giveBack(t *testing.T, permits ...*semaphore.Permit) {
	t.Helper()
	for _, p := range permits {
		require.NoError(t, p.Unlock(t.Context()))
	}
}

// wantAllFree fails unless n permits are free, and no more.
func wantAllFree(t *testing.T, n int) {
	t.Helper()
	synctest.Wait() // for what is done in the background
	s := of(t, n)
	permits := take(t, s, n)
	_, err := s.TryAcquire(t.Context())
	require.ErrorIs(t, err, locker.ErrHeld)
	giveBack(t, permits...)
}

// No slot is left unused while somebody waits.
func TestAcquire_aSlotThatIsFreedGoesToAWaiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		held := take(t, of(t, n), n)
		began := time.Now()
		var next []*semaphore.Permit
		for _, freed := range held {
			granted := make(chan *semaphore.Permit, 1)
			s := of(t, n)
			go func() {
				p, err := s.Acquire(t.Context())
				assert.NoError(t, err)
				granted <- p
			}()
			synctest.Wait()
			giveBack(t, freed)
			p := <-granted
			assert.Equal(t, freed.Slot(), p.Slot())
			next = append(next, p)
		}
		giveBack(t, next...)
		assert.Equal(t, began, time.Now())
	})
}

func TestAcquire_cancelledLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		why := errors.New("a reason")
		held := take(t, of(t, n), n)
		ctx, cancel := context.WithCancelCause(t.Context())
		s := of(t, n)
		done := testwait.Go(func() error { _, err := s.Acquire(ctx); return err })
		synctest.Wait()
		cancel(why)
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, locker.ErrHeld)
		giveBack(t, held...)
		wantAllFree(t, n)
	})
}

func TestSemaphore_ofDifferentNTakesSlotsBelowItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := of(t, 2), of(t, 4)
		two := take(t, small, 2)
		for _, p := range two {
			assert.Less(t, p.Slot(), 2)
		}
		_, err := small.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
		others := take(t, large, 2)
		_, err = large.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld, "the largest n is the limit")
		giveBack(t, others...)
		_, err = small.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld, "these are not its slots")
		giveBack(t, two...)
		wantAllFree(t, 4)
	})
}

func TestAcquire_ofAnUnreachableBackendIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		c := locktest.New(t)
		s := semaphore.New(c.Client, name, n)
		held := take(t, of(t, n), n)
		granted := testwait.Go(func() error { // it waits when the outage begins
			p, err := s.Acquire(t.Context())
			if err != nil {
				return err
			}
			return p.Unlock(t.Context())
		})
		synctest.Wait()
		c.Down()
		for _, acquire := range []func(context.Context) (*semaphore.Permit, error){s.Acquire, s.TryAcquire} {
			_, err := acquire(t.Context())
			require.ErrorIs(t, err, locktest.ErrUnreachable)
			require.NotErrorIs(t, err, locker.ErrHeld)
		}
		c.Up()
		giveBack(t, held...)
		require.NoError(t, <-granted)
		wantAllFree(t, n)
	})
}

// oneFails is a backend of which one slot's waiter is refused, and the other granted after that.
type oneFails struct{ driver.Driver }

func (d oneFails) Claim(req driver.Request) driver.Claim {
	return oneFailsClaim{d.Driver.Claim(req), req}
}

type oneFailsClaim struct {
	driver.Claim
	req driver.Request
}

func (c oneFailsClaim) Ask(ctx context.Context) (time.Duration, error) {
	switch {
	case c.req.Wake == nil:
		return 0, locker.ErrHeld
	case strings.HasSuffix(c.req.Name, "/0"):
		time.Sleep(time.Millisecond) // until the other's request is in flight
		return 0, locker.ErrUnsupported
	}
	time.Sleep(time.Second)
	return c.Claim.Ask(context.WithoutCancel(ctx))
}

func TestAcquire_hasWhatItIsGrantedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testwait.Closed(locker.New(oneFails{memory.NewDriver(memory.InSpace(t.Name()))}))(t)
		p, err := semaphore.New(c, name, 2).Acquire(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, p.Slot())
		giveBack(t, p)
	})
}

func TestDo_givesBackAfterAPanicAndReturnsTheFunctionsErrorAndItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := of(t, 2)
		assert.PanicsWithValue(t, "no", func() {
			_ = s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { panic("no") })
		})
		failed := errors.New("failed")
		require.ErrorIs(t, s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return failed }), failed)
		err := of(t, 2, locker.WithoutRenewal()).Do(t.Context(), func(ctx context.Context, _ *semaphore.Permit) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, locker.ErrLost, "its context has ended with the hold")
		wantAllFree(t, 2)
	})
}

func TestNew_ofWhatIsNotValidTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		for what, s := range map[string]*semaphore.Semaphore{
			"none":          semaphore.New(c.Client, name, 0),
			"fewer":         semaphore.New(c.Client, name, -1),
			"an empty name": semaphore.New(c.Client, "", 2),
			"not UTF-8":     semaphore.New(c.Client, "\xff", 2),
			"an option":     semaphore.New(c.Client, name, 2, nil),
		} {
			_, err := s.Acquire(t.Context())
			require.Error(t, err, what)
			require.NotErrorIs(t, err, locker.ErrHeld, what)
			_, err = s.TryAcquire(t.Context())
			require.Error(t, err, what)
			require.Error(t, s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { panic("called") }), what)
		}
		wantAllFree(t, 2)
		s := semaphore.New(c.Client, name, 2)
		require.NoError(t, c.Close())
		_, err := s.Acquire(t.Context())
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}

func ExampleNew() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-semaphore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	s := semaphore.New(client, "exports", 2)
	err = s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
		fmt.Println("one of two:", p.Slot() < 2)
		other, err := s.TryAcquire(ctx)
		if err != nil {
			return err
		}
		fmt.Println("the other:", other.Slot() != p.Slot())
		_, err = s.TryAcquire(ctx)
		fmt.Println("a third:", errors.Is(err, locker.ErrHeld))
		return other.Unlock(ctx)
	})
	fmt.Println(err)
	// Output:
	// one of two: true
	// the other: true
	// a third: true
	// <nil>
}

func TestTryAcquire_beginsWithARandomSlot(t *testing.T) {
	s, seen := of(t, 4), map[int]bool{}
	for range 100 {
		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		seen[p.Slot()] = true
		giveBack(t, p)
	}
	assert.Len(t, seen, 4)
}

// Programs come, wait, leave and are served.
func TestDo_atMostNHoldAndNothingIsLeaked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		var taken [n]atomic.Bool
		var last [n]atomic.Uint64
		var programs sync.WaitGroup
		for i := range 2 * n {
			c := locktest.New(t)
			// A waiter hears of several slots at once.
			c.Slow(time.Duration(1+i%2) * time.Millisecond)
			s := semaphore.New(c.Client, name, n)
			programs.Go(func() {
				for j := range 8 {
					ctx := t.Context()
					if j%2 == 1 { // some leave
						ctx = testwait.Context(t, time.Duration(8*i)*time.Millisecond)
					}
					err := s.Do(ctx, func(_ context.Context, p *semaphore.Permit) error {
						assert.False(t, taken[p.Slot()].Swap(true), "two have a slot")
						assert.Less(t, last[p.Slot()].Swap(p.Token()), p.Token(), "tokens of a slot rise")
						time.Sleep(time.Millisecond)
						taken[p.Slot()].Store(false)
						return nil
					})
					assert.True(t, err == nil || j%2 == 1, "%v", err)
				}
			})
		}
		programs.Wait()
		wantAllFree(t, n)
	})
}

// counting is a Driver that counts requests.
type counting struct {
	driver.Driver
	requests *atomic.Int64
}

type countingClaim struct {
	driver.Claim
	requests *atomic.Int64
}

func (d counting) Claim(req driver.Request) driver.Claim {
	return countingClaim{d.Driver.Claim(req), d.requests}
}

func (c countingClaim) Ask(ctx context.Context) (time.Duration, error) {
	c.requests.Add(1)
	return c.Claim.Ask(ctx)
}

func (c countingClaim) Release(ctx context.Context) error {
	c.requests.Add(1)
	return c.Claim.Release(ctx)
}

// The costs that the package's documentation gives.
func TestCost_isWhatTheDocumentationSays(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int64
			cost := func() int { return int(requests.Swap(0)) }
			c := testwait.Closed(locker.New(counting{memory.NewDriver(memory.InSpace(t.Name())), &requests}, locker.WithoutRenewal()))(t)
			s := semaphore.New(c, name, n)
			first := take(t, s, 1)[0]
			assert.Equal(t, 1, cost(), "all are free")
			take(t, s, n-1)
			cost()
			_, err := s.TryAcquire(t.Context())
			require.ErrorIs(t, err, locker.ErrHeld)
			assert.Equal(t, n, cost(), "all are held")

			done := testwait.Go(func() error { _, err := s.Acquire(t.Context()); return err })
			synctest.Wait()
			assert.Equal(t, 2*n, cost(), "to try each slot, and to enter its queue")
			giveBack(t, first)
			require.NoError(t, <-done)
			synctest.Wait()
			assert.LessOrEqual(t, cost(), n+2, "to release a slot, be granted it, and leave the other queues")
		})
	}
}
