package redlock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// One that is under way is not sent again. One that fails is sent again ever more rarely, until the
// node answers or the lock has expired there.
func TestFaults_releasesAreFew(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		for _, s := range stages {
			s.always(path{there: 100 * time.Millisecond})
		}
		for range 3 {
			go func() { assert.NoError(t, l.Release(context.Background())) }()
		}
		time.Sleep(time.Second)
		assert.Equal(t, 1, stages[0].counted(releaseIt))
		for _, answers := range []bool{true, false} {
			befalls(stages, "---")
			l = taken(t, d)
			stages[2].always(path{err: errRefused})
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(3 * time.Second)
			assert.True(t, stages[2].has("x"))
			if answers {
				stages[2].on(nil)
				time.Sleep(maxRetry)
				assert.False(t, stages[2].has("x"))
			}
			time.Sleep(ttl)
			tries := stages[2].counted(releaseIt)
			assert.Less(t, tries, 40)
			time.Sleep(2 * ttl)
			assert.Equal(t, tries, stages[2].counted(releaseIt), "nothing goes on for ever")
		}
	})
}

// An Unlock does not wait for a renewal in flight. One that reaches the nodes after the release
// finds nothing there, and its answers may come in before those to the release: that is no loss.
// Nor does what joins then count for the renewal.
func TestRelease_duringAnExtendIsNoLoss(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		for _, s := range stages {
			s.on(func(v verb, _ string) path {
				if v == releaseIt {
					return path{there: time.Millisecond, back: 10 * time.Millisecond}
				}
				return path{there: 3 * time.Millisecond}
			})
		}
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.NoError(t, l.Release(t.Context()), "every node had it and has released it")
		require.ErrorIs(t, <-extended, locker.ErrLost)
		requests := total(stages)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		synctest.Wait()
		assert.Equal(t, requests, total(stages))
		assert.Zero(t, holding(stages))
	})
}

// Two of five nodes grant after the majority, and one of that majority forgets the hold. Another
// may have come and gone on that node and the late two, before these granted. Whether one has makes
// no difference to what the nodes say: four have the hold and one does not. So Unlock says ErrLost,
// and an Extend before it would, too. An Extend that succeeded before the node forgot has shown
// that the majority had the hold when all had granted.
func TestRelease_cannotTellWhetherAnotherCameBeforeALateGrant(t *testing.T) {
	for name, c := range map[string]struct{ another, extended bool }{
		"another came and went": {another: true}, "nobody came": {}, "nobody came, and an Extend has shown it": {extended: true},
	} {
		for _, call := range []func(context.Context, driver.Lease) error{
			func(ctx context.Context, l driver.Lease) error { return l.Extend(ctx, ttl) },
			func(ctx context.Context, l driver.Lease) error { return l.Release(ctx) },
		} {
			play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
				for _, s := range stages[3:] {
					s.always(path{there: 300 * time.Millisecond})
				}
				l := taken(t, d)
				synctest.Wait()
				befalls(stages, "-----")
				if c.another {
					comeAndGo(t, stages, 2)
				}
				time.Sleep(400 * time.Millisecond)
				if c.extended {
					require.NoError(t, l.Extend(t.Context(), ttl))
					synctest.Wait()
				}
				forget(stages[2])
				for i, s := range stages {
					require.Equal(t, i != 2, s.has("x"), "node %d", i)
				}
				if err := call(t.Context(), l); c.extended {
					require.NoError(t, err, name)
				} else {
					require.ErrorIs(t, err, locker.ErrLost, name)
				}
				_ = l.Release(t.Context())
			})
		}
	}
}

// A node that was away is asked to take the lock as well, and its answer comes after the release,
// or not at all.
func TestRelease_givesBackALateGrantOfARejoin(t *testing.T) {
	for _, p := range []path{{there: 300 * time.Millisecond}, {back: 300 * time.Millisecond}, {there: 450 * time.Millisecond, back: time.Second}} {
		play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
			l := taken(t, d, stages[2])
			stages[2].only(propose, p)
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(2 * time.Second)
			assert.Zero(t, holding(stages))
		})
	}
}

func TestRelease_hasTheValuesOfItsContext(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		traced := func(s string) context.Context { return context.WithValue(t.Context(), ctxKey{}, s) }
		l, err := claims.Take(traced("lock"), d, askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Extend(traced("extend"), ttl))
		synctest.Wait() // what a node is told of later is released in the background
		require.NoError(t, l.Release(traced("unlock")))
		synctest.Wait()
		for _, s := range stages {
			assert.Equal(t, "unlock", s.traced)
		}
	})
}

// A release is a success when a majority has confirmed it; the others are not cut off by Close. It
// waits for a client library that heeds no context until that returns, and for what its answer
// leads to.
func TestClose_letsReleasesArrive(t *testing.T) {
	for name, c := range map[string]struct {
		last        path
		takes       time.Duration
		left, nodes int
	}{
		"a node that hangs":         {hung, 500 * time.Millisecond, 1, 5},
		"a client without contexts": {path{there: 2 * time.Second, heedless: true}, 2 * time.Second, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stages := newStages(c.nodes)
				d := stageDriver(t, stages, NodeTimeout(time.Second))
				l := taken(t, d)
				synctest.Wait()
				require.NoError(t, l.Extend(t.Context(), ttl), "from which all nodes count")
				synctest.Wait()
				stages[3].always(path{there: 200 * time.Millisecond})
				stages[4].always(c.last)
				require.NoError(t, l.Release(t.Context()))
				start := time.Now()
				require.NoError(t, d.Close())
				assert.Equal(t, c.takes, time.Since(start))
				assert.Equal(t, c.left, holding(stages))
			})
		})
	}
}

// With client libraries that end no request: what is not answered in time has failed nevertheless.
func TestFaults_heedlessMajorityHangs(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		for _, s := range stages[:2] {
			s.always(path{there: time.Minute, heedless: true})
		}
		start := time.Now()
		require.ErrorContains(t, l.Extend(t.Context(), ttl), "no answer within 500ms")
		require.ErrorContains(t, l.Release(t.Context()), "no answer within 500ms")
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A node that hangs, and a client library that ends no request: requests must not pile up. When it
// wakes it is as good as the others.
func TestNode_thatHangsCollectsFewRequests(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		stages[0].always(path{there: 2 * time.Minute, heedless: true})
		before := runtime.NumGoroutine()
		for range 200 {
			l := taken(t, d)
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.Less(t, stages[0].counted(propose), 30)
		assert.Less(t, runtime.NumGoroutine()-before, 60)
		stages[0].on(nil)
		time.Sleep(3 * time.Minute)
		assert.Zero(t, holding(stages), "what it granted when it woke is given back")
		l := taken(t, d)
		assert.Equal(t, 3, holding(stages), "it is asked again")
		require.NoError(t, l.Release(t.Context()))
	})
}

// A place in a queue is not the lock: that it is given up confirms no hold, also while its node is
// asked.
func TestRelease_doesNotCountANodeThatOnlyHadAPlace(t *testing.T) {
	for _, asked := range []bool{false, true} {
		play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
			for _, s := range stages[3:] {
				s.edit("x", ownedForLong)
			}
			w := wait(t, d)
			require.NoError(t, w.err)
			if asked {
				const back = 100 * time.Millisecond
				stages[3].only(propose, path{back: back})
				time.Sleep(time.Second + back/2) // it looks
			}
			stages[2].always(path{err: errRefused})
			var e *Error
			require.ErrorAs(t, w.lease.Release(t.Context()), &e, "two of five confirm that they had it until now")
			stages[2].on(nil)
			time.Sleep(2 * time.Second)
			for i, s := range stages {
				s.edit("x", func(r *register) { assert.Empty(t, r.queue, "node %d", i) })
			}
			assert.False(t, stages[2].has("x"))
		})
	}
}
