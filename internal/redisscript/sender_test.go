package redisscript

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

const maxBatches = MostAtOnce

// gated is a Runner whose batches take until the test lets them go on.
type gated struct {
	puppet

	apart   bool
	gate    chan struct{} // a value lets one batch go on; closed: all
	mu      sync.Mutex
	batches [][]Call

	latest context.Context // of a batch
}

func newGated() *gated { return &gated{gate: make(chan struct{})} }

func (g *gated) AtOnce() int {
	if g.apart {
		return 0
	}
	return maxBatches
}

func (g *gated) Scans(context.Context) ([]Scan, error) {
	return []Scan{func(context.Context, uint64, string) ([]string, uint64, error) { return []string{"{x}"}, 0, nil }}, nil
}

func (g *gated) Run(ctx context.Context, calls []Call, replies []Reply) {
	g.mu.Lock()
	g.batches = append(g.batches, slices.Clone(calls))
	g.latest = ctx
	g.mu.Unlock()
	<-g.gate
	for i, c := range calls {
		if replies[i].Value = any(int64(1)); c.Script.Takes {
			replies[i].Value = []any{int64(granted), int64(7), nowMicro(), int64(0)}
		}
	}
}

// sizes are how many calls have shared each of the batches so far.
func (g *gated) sizes() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []int
	for _, batch := range g.batches {
		all = append(all, len(batch))
	}
	return all
}

// takes has n goroutines take a lock each. What they come to is sent to the result.
func takes(ctx context.Context, d *Driver, n int, ttl time.Duration) <-chan error {
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: ttl})
			done <- err
		}()
	}
	return done
}

func TestSender_whoComesMeanwhileGoesWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		first := takes(t.Context(), d, maxBatches, time.Minute)
		synctest.Wait()
		const n = maxCalls + 10
		others := takes(t.Context(), d, n, time.Minute)
		synctest.Wait()
		assert.Equal(t, []int{1, 1}, g.sizes())
		g.gate <- struct{}{}
		synctest.Wait()
		assert.Equal(t, []int{1, 1, maxCalls}, g.sizes())
		g.gate <- struct{}{}
		synctest.Wait()
		assert.Equal(t, []int{1, 1, maxCalls, n - maxCalls}, g.sizes())
		close(g.gate)
		for range maxBatches {
			require.NoError(t, <-first)
		}
		for range n {
			require.NoError(t, <-others)
		}
		require.NoError(t, d.Close(noClient))
	})
}

// Batches that hang hold up those who come just then, for a moment. Who comes later is sent at
// once, also if it cannot wait for a moment.
func TestSender_aBatchThatHangsHoldsNobodyUp(t *testing.T) {
	for how, take := range map[string]func(context.Context, *Driver) <-chan error{
		"a take":     func(ctx context.Context, d *Driver) <-chan error { return takes(ctx, d, 1, time.Hour) },
		"a proposal": func(ctx context.Context, d *Driver) <-chan error { return proposals(ctx, d, 1) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated()
				d := NewDriver(g)
				hung := takes(t.Context(), d, maxBatches, time.Hour)
				synctest.Wait()
				together := takes(t.Context(), d, 2, time.Hour)
				synctest.Wait()
				require.Len(t, g.sizes(), maxBatches)
				time.Sleep(overdue)
				synctest.Wait()
				require.Equal(t, []int{1, 1, 2}, g.sizes())
				for sent := 3; sent < 20; sent++ {
					ctx, cancel := context.WithTimeout(t.Context(), overdue/2)
					done := take(ctx, d)
					time.Sleep(overdue)
					synctest.Wait()
					require.Len(t, g.sizes(), sent+1)
					if how == "a take" {
						require.ErrorIs(t, <-done, context.DeadlineExceeded, "after it was sent")
					}
					cancel()
				}
				close(g.gate)
				for range 2 {
					require.NoError(t, <-hung)
					require.NoError(t, <-together)
				}
				require.NoError(t, d.Close(noClient))
			})
		})
	}
}

// What was given up before it was sent never runs, and leaves nothing to clean up.
func TestSender_whatIsGivenUpInTimeIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		first := takes(t.Context(), d, maxBatches, time.Minute)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
			assert.ErrorIs(t, err, context.Canceled)
			assert.False(t, mayBeThere(l), "nothing was sent")
		}()
		synctest.Wait()
		cancel()
		<-done
		close(g.gate)
		for range maxBatches {
			require.NoError(t, <-first)
		}
		synctest.Wait()
		assert.Equal(t, []int{1, 1}, g.sizes())
		require.NoError(t, d.Close(noClient))
	})
}

// A take that nobody waits for any more may be applied at any time: its clean-up goes soon, goes on for as long
// as the take may come, and once more after it.
func TestSender_aTakeThatIsGivenUpIsUndoneWhenItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, l, "it may be taken")
		time.Sleep(time.Hour)
		assert.Positive(t, l.Validity(), "the core is to go on")

		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		time.Sleep(overdue)
		synctest.Wait()
		require.Len(t, g.batches, 2, "soon")
		assert.Same(t, release, g.batches[1][0].Script)
		close(g.gate)
		require.NoError(t, <-released)
		require.Len(t, g.batches, 3, "and after it")
		assert.Same(t, release, g.batches[2][0].Script)
		require.NoError(t, d.Close(noClient))
	})
}

// What is left of an earlier request does not stand for the one that is given up.
func TestSender_aRequestIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		for range 10 {
			done := takes(t.Context(), d, 1, time.Minute)
			g.gate <- struct{}{}
			require.NoError(t, <-done)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Hour)
			assert.Equal(t, time.Minute, l.Validity(), "it may be granted now")
			g.gate <- struct{}{}
			synctest.Wait()
			assert.NotEqual(t, time.Minute, l.Validity(), "it has ended")
		}
		require.NoError(t, d.Close(noClient))
	})
}

type contextKey struct{}

// A client library finds in its context what the caller has put there, unless several share the batch.
func TestSender_aBatchHasTheValuesOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		ctx := context.WithValue(t.Context(), contextKey{}, "the caller's")
		value := func() any {
			synctest.Wait()
			return g.latest.Value(contextKey{})
		}
		for range maxBatches {
			takes(ctx, d, 1, time.Minute)
			assert.Equal(t, "the caller's", value())
		}
		below, cancel := context.WithTimeout(g.latest, time.Hour) // as client libraries do
		defer cancel()
		takes(ctx, d, 2, time.Minute)
		synctest.Wait()
		close(g.gate)
		assert.Nil(t, value())
		require.ErrorIs(t, below.Err(), context.Canceled, "with the batch")
		require.NoError(t, d.Close(noClient))
	})
}

// A batch goes on while one of its requests is wanted, and not for longer: its connection may be needed.
func TestSender_aBatchEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		takes(t.Context(), d, maxBatches, time.Minute)
		synctest.Wait()
		one, cancelOne := context.WithCancel(t.Context())
		two, cancelTwo := context.WithCancel(t.Context())
		takes(one, d, 1, time.Minute)
		takes(two, d, 1, time.Hour)
		synctest.Wait()
		g.gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, []int{1, 1, 2}, g.sizes())
		deadline, ok := g.latest.Deadline()
		assert.True(t, ok)
		assert.Equal(t, time.Hour/2, time.Until(deadline), "the longest")
		cancelOne()
		time.Sleep(2 * interval)
		synctest.Wait()
		require.NoError(t, g.latest.Err())
		cancelTwo()
		synctest.Wait()
		require.ErrorIs(t, g.latest.Err(), context.Canceled)
		close(g.gate)
		require.NoError(t, d.Close(noClient))
	})
}

// A waiter whose latest request was given up unsent stands in the queue all the same, by an earlier one.
func TestSender_aWaiterThatIsKnownIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, released atomic.Int32
		w := newWire()
		p := &puppet{dial: func(context.Context) (Subscription, error) { return w, nil }}
		p.run = func(ctx context.Context, s *Script, _ string) (any, error) {
			if s == release {
				released.Add(1)
				return int64(1), nil
			}
			if asked.Add(1) == 1 {
				return heldReply(7), nil // for a minute, after which it looks
			}
			<-ctx.Done() // in vain, for a connection
			time.Sleep(2 * moment)
			return nil, notSent{ctx.Err()}
		}
		d := NewDriver(p)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		l, err := claims.Wait(ctx, d, driver.Request{Name: "x", TTL: time.Hour}, func(error) {})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotNil(t, l)
		assert.EqualValues(t, 2, asked.Load())
		assert.EqualValues(t, 1, released.Load())
		require.NoError(t, d.Close(noClient))
	})
}

// A Release whose context ends returns, with an error.
func TestSender_aReleaseHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		d := NewDriver(g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := claims.Take(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		again, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err = l.Release(again)
		require.Error(t, err)
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.LessOrEqual(t, time.Since(start), time.Second+moment)
		close(g.gate)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, d.Close(noClient))
	})
}

// A server of several is not to hold up what is for another.
func TestSender_eachByItselfWhereThereAreSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		g.apart = true
		d := NewDriver(g)
		const n = 50
		done := takes(t.Context(), d, n, time.Minute)
		synctest.Wait()
		assert.Len(t, g.sizes(), n)
		close(g.gate)
		for range n {
			require.NoError(t, <-done)
		}
		require.NoError(t, d.Close(noClient))
		_, err := claims.Take(t.Context(), d, forOneSecond)
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}
