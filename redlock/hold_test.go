package redlock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// taken is a lease on x that the nodes have which are reachable.
func taken(t *testing.T, d *backend, unreachable ...*stage) *claim {
	t.Helper()
	always(unreachable, path{err: errRefused})
	l, err := claims.Take(t.Context(), d, askFor("x"))
	require.NoError(t, err)
	synctest.Wait()
	for _, s := range unreachable {
		s.on(nil)
	}
	return l.(*claim)
}

// setFaults sets the fault of each node: u, unreachable; s, silent; h, it answers after the
// time-out, for which the client library waits; d, the library says that its time is up; l, late
// replies; L, late requests; f, it has forgotten the lock; a, another has the lock now; or -, none.
func setFaults(stages []*stage, what string) {
	for i, s := range stages {
		s.on(nil)
		switch what[i] {
		case 'u':
			s.always(path{err: errRefused})
		case 's':
			s.always(hung)
		case 'h':
			s.always(path{there: 2 * longestTimeout, heedless: true})
		case 'd':
			s.always(path{err: context.DeadlineExceeded})
		case 'L':
			s.always(path{there: 300 * time.Millisecond})
		case 'l':
			s.always(path{back: 50 * time.Millisecond})
		case 'f':
			s.forget()
		case 'a':
			s.edit(ownedBy(another, 0))
		}
	}
}

// A hold is lost when so many nodes had not had it all the time that another may have come and
// gone: those that have forgotten it, that another has, or that had not been reached and join. With
// fewer of them it goes on if a majority has it, and else it is an outage.
func TestHold_isWhatAMajorityHasHadAllTheTime(t *testing.T) {
	for _, steps := range []string{
		// the faults of the nodes, and the outcome: a take, Extends, and a release, the last
		"--- ok, --- ok, --- ok",
		"--- ok, --u ok, -u- ok, --- ok",
		"--- ok, --- ok, --f ok, --- ok, -f- ok, --- ok, f-- ok, --- ok", // who has forgotten joins, and counts from the next one
		"--- ok, -uu outage, --- ok, -uu outage",
		"--- ok, -ss outage, --- ok, --- ok",
		"--- ok, --- ok, -ff lost, --- lost",
		"--- ok, --- ok, ffl lost, --- lost",
		"--- ok, --- ok, -fu outage, --- ok, --- ok",
		"--u ok, --- ok, --- ok, -f- ok, --- ok",
		"--u ok, -f- lost, --- lost",
		"--u ok, --- ok, -f- lost, --- lost", // who joins counts from the next one
		"--u ok, -u- ok, -u- ok, --- ok",
		"--u ok, -s- ok, --- ok",
		"--u ok, -uu outage, --u ok, --- ok",
		"--a ok, --- ok, -u- outage, --- ok",
		"--a ok, -f- lost, --- lost",
		"--a ok, -a- lost, --- lost",
		"--l ok, -u- ok, --- ok",
		"aa- held",
		"a-u held",
		"aau held",
		"-uu outage",
		"su--- ok, su--- ok, su--- ok",
		"----- ok, ----- ok, uu--- ok, --ff- ok, ----- ok",
		"----- ok, ----- ok, --fff lost, ----- lost",
		"---uu ok, --u-- ok, ----- ok, fuu-- outage, ----- ok",
		"---uu ok, f---- lost, ----- lost",
		"---ul ok, ----- ok, --us- ok, ----- ok",
		"---- ok, ---- ok, -f-- ok, ---- ok, -f-- ok",
		"---- ok, ---- ok, -ff- lost, ---- lost",
		"--- ok, hh- outage, hh- outage",
		"--- ok, dd- outage, dd- outage",
		// Two of five grant after the majority, and one of that majority forgets the hold. Another
		// may have come and gone on that node and the late two, before these granted; what the
		// nodes say does not tell. An Extend that succeeded before has shown that the majority had
		// the hold when all had granted.
		"---LL ok, --f-- lost, ----- lost",
		"---LL ok, --f-- lost",
		"---LL ok, ----- ok, --f-- ok, ----- ok",
		"---LL ok, ----- ok, --f-- ok",
		// of a release
		"--- ok, --- ok, --u ok",
		"--- ok, --- ok, -ff lost",
		"--u ok, u-- outage",
		"--- ok, -u- ok",
	} {
		nodes := strings.IndexByte(steps, ' ')
		play(t, nodes, func(t *testing.T, d *backend, stages []*stage) {
			var l driver.Claim
			all := strings.Split(steps, ", ")
			for n, step := range all {
				what, want, _ := strings.Cut(step, " ")
				setFaults(stages, what)
				start := time.Now()
				var err error
				switch {
				case n == 0:
					l, err = claims.Take(t.Context(), d, askFor("x"))
				case n < len(all)-1:
					err = l.Extend(t.Context(), ttl)
				default:
					err = l.Release(t.Context())
				}
				var e *Error
				got := "ok"
				switch {
				case errors.Is(err, locker.ErrLost):
					got = "lost"
				case errors.Is(err, locker.ErrHeld):
					got = "held"
				case errors.As(err, &e):
					got = "outage"
				}
				require.Equal(t, want, got, "%s, at the end of %s: %v", steps, all[:n+1], err)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has time")
				if !strings.Contains(what, "l") && want != "outage" && !strings.HasPrefix(steps, "--u ok, -s-") {
					require.Zero(t, time.Since(start), "nothing is waited for: %s, at the end of %s", steps, all[:n+1])
				}
				time.Sleep(400 * time.Millisecond)
			}
			setFaults(stages, strings.Repeat("-", nodes))
			time.Sleep(2 * maxRetry)
			for i, s := range stages {
				assert.Contains(t, []uint64{0, another}, s.owner(), "%s: node %d", steps, i)
			}
		})
	}
}

// comeAndGo has a node forget the lock, and another client take it and release it.
func comeAndGo(t *testing.T, stages []*stage, forgets int) {
	t.Helper()
	stages[forgets].forget()
	other := stageDriver(t, stages)
	require.NoError(t, taken(t, other).Release(t.Context()))
	synctest.Wait()
	require.NoError(t, other.Close())
}

// An Extend that was interrupted, or is under way, has had a node join. Neither the next one nor a
// Release counts that node as one that always had the lock.
func TestExtend_doesNotCountWhatJoinedForAnother(t *testing.T) {
	for name, then := range map[string]func(ctx context.Context, l driver.Claim) error{
		"after one that was interrupted": func(ctx context.Context, l driver.Claim) error {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_ = l.Extend(short, ttl)
			return l.Extend(ctx, ttl)
		},
		"while one is under way": func(ctx context.Context, l driver.Claim) error {
			go func() { _ = l.Extend(ctx, ttl) }()
			time.Sleep(time.Millisecond)
			return l.Extend(ctx, ttl)
		},
		"a release while one is under way": func(ctx context.Context, l driver.Claim) error {
			go func() { _ = l.Extend(ctx, ttl) }()
			time.Sleep(time.Millisecond)
			return l.Release(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
				l := taken(t, d, stages[2])
				comeAndGo(t, stages, 1)
				stages[1].always(path{back: 400 * time.Millisecond})
				stages[2].always(path{there: 50 * time.Millisecond})
				require.ErrorIs(t, then(t.Context(), l), locker.ErrLost, "another came and went")
				_ = l.Release(t.Context())
			})
		})
	}
}

// Answers that come when the lease has expired extend nothing, whatever the nodes say; and then
// none is asked.
func TestExtend_revivesNothing(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		time.Sleep(ttl - 50*time.Millisecond)
		for _, s := range stages {
			s.only(extendIt, path{back: 100 * time.Millisecond})
		}
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		synctest.Wait()
		assert.Zero(t, holding(stages))
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		assert.Equal(t, 1, stages[0].counted(extendIt))
		setFaults(stages, "---")
		l = taken(t, d)
		time.Sleep(ttl)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		synctest.Wait()
		assert.Equal(t, 1, stages[0].counted(extendIt))
	})
}

// A node granted the lock under a token of its own, smaller or larger than the hold's, and its
// answer was lost. What is ours there is raised to the hold's token, if it is smaller, and given
// back. It is one request for many leases.
func TestExtend_raisesWhatWasGrantedUnseen(t *testing.T) {
	for larger, last := range map[bool]uint64{false: 0, true: 1 << 52} {
		play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
			ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
			for i, last := range []uint64{ahead, ahead, last} {
				stages[i].edit(func(r *register) { *r = register{known: true, last: last} })
			}
			stages[2].only(propose, path{mute: true})
			l := taken(t, d)
			require.Equal(t, ahead+1, l.Token())
			time.Sleep(time.Second)
			stages[2].on(nil)
			require.NotZero(t, stages[2].owner())
			other, err := claims.Take(t.Context(), d, askFor("y"))
			require.NoError(t, err)
			synctest.Wait()
			for _, err := range d.ExtendAll(t.Context(), []driver.Claim{l, other}, ttl) {
				require.NoError(t, err)
			}
			synctest.Wait()
			stages[2].edit(func(r *register) {
				assert.Equal(t, larger, r.last > l.Token())
				assert.GreaterOrEqual(t, r.last, l.Token())
			})
			assert.Equal(t, []int{1, 1, 1}, []int{stages[0].batches, stages[1].batches, stages[2].batches})
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, other.Release(t.Context()))
			synctest.Wait()
			assert.Zero(t, holding(stages))
		})
	}
}

// So that one time-out is not that of all.
func TestExtendAll_ofManyIsARequestForEach1024(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		all := make([]driver.Claim, maxBatch+2)
		for i := range all {
			all[i] = l
		}
		for i, err := range d.ExtendAll(t.Context(), all, ttl) {
			require.NoError(t, err, "extension %d", i)
		}
		synctest.Wait()
		assert.Equal(t, []int{2, 2, 2}, []int{stages[0].batches, stages[1].batches, stages[2].batches})
		require.NoError(t, l.Release(t.Context()))
	})
}

// What nodes answer within their time-out is enough for a Lock, and so it must be for a renewal, at
// the shortest TTL that is not refused.
func TestExtend_nodesThatAnswerWithinTheirTimeOutRenew(t *testing.T) {
	const ttl = 3500 * time.Millisecond
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		always(stages, path{there: 499 * time.Millisecond})
		require.ErrorIs(t, d.CheckTTL(ttl-time.Millisecond), locker.ErrUnsupported)
		c, err := locker.New(d, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		select {
		case <-m.Hold().Lost():
			t.Errorf("lost, though every node answers in time")
		case <-time.After(5 * ttl):
		}
		require.NoError(t, m.Unlock(t.Context()))
	}, NodeTimeout(500*time.Millisecond))
}

// One that is under way is not sent again. One that fails is sent again ever more rarely, until the
// node answers or the lock has expired there.
func TestFaults_releasesAreFew(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		l := taken(t, d)
		always(stages, path{there: 100 * time.Millisecond})
		for range 3 {
			go func() { assert.NoError(t, l.Release(context.Background())) }()
		}
		time.Sleep(time.Second)
		assert.Equal(t, 1, stages[0].counted(releaseIt))
		for _, answers := range []bool{true, false} {
			setFaults(stages, "---")
			l = taken(t, d)
			stages[2].always(path{err: errRefused})
			for range 2 { // of which one is sent again
				require.NoError(t, l.Release(t.Context()))
				synctest.Wait()
			}
			time.Sleep(3 * time.Second)
			assert.NotZero(t, stages[2].owner())
			if answers {
				stages[2].on(nil)
				time.Sleep(maxRetry)
				assert.Zero(t, stages[2].owner())
			}
			time.Sleep(ttl)
			tries := stages[2].counted(releaseIt)
			assert.Less(t, tries, 35)
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

// A node that hangs, and a client library that ends no request, or ends them just before their
// time-out: requests must not pile up. When it wakes it is as good as the others.
func TestNode_thatHangsCollectsFewRequests(t *testing.T) {
	for _, p := range []path{
		{there: 2 * time.Minute, heedless: true}, {there: longestTimeout - time.Millisecond, err: errRefused},
	} {
		play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
			stages[0].always(p)
			before := runtime.NumGoroutine()
			for range 200 {
				l := taken(t, d)
				require.NoError(t, l.Extend(t.Context(), ttl))
				require.NoError(t, l.Release(t.Context()))
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			assert.Less(t, stages[0].counted(propose), 60)
			assert.Less(t, runtime.NumGoroutine()-before, 60)
			stages[0].on(nil)
			time.Sleep(3 * time.Minute)
			assert.Zero(t, holding(stages), "what it granted when it woke is given back")
			l := taken(t, d)
			assert.Equal(t, 3, holding(stages), "it is asked again")
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

// A node that answers, however late, or fails at once is not silent. The time-out of a request
// counts once, whatever the client library returns after it.
func TestNode_isSilentWhileNothingComesBack(t *testing.T) {
	for _, c := range []struct {
		err           error
		overdue, slow bool
		silent        int // after 5
	}{
		{nil, true, true, 0},
		{nil, false, true, 0},
		{driver.ErrHeld, true, true, 0},
		{driver.ErrLost, true, true, 0},
		{errRefused, false, false, 0},
		{errRefused, false, true, 6},
		{errRefused, true, true, 5},
	} {
		n := node{inFlight: 1, silent: 5}
		n.returned(c.err, c.overdue, c.slow)
		assert.Equal(t, c.silent, n.silent, "%+v", c)
		assert.Zero(t, n.inFlight)
	}
}

// A place in a queue is not the lock: that it is given up confirms no hold, also while its node is
// asked.
func TestRelease_doesNotCountANodeThatOnlyHadAPlace(t *testing.T) {
	for _, asked := range []bool{false, true} {
		play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
			edit(stages[3:], ownedForLong)
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
			edit(stages, func(r *register) { assert.Empty(t, r.queue) })
			assert.Zero(t, stages[2].owner())
		})
	}
}

// A raise that comes after the release finds no lease, and is answered first: the node had the
// lease until it was released.
func TestRelease_thatOvertakesARaiseCounts(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		later := time.Now().Add(time.Second).UnixMicro()
		edit(stages[1:], func(r *register) { r.known, r.last = true, uint64(later) })
		stages[0].on(func(v verb, _ string) path {
			return map[verb]path{raiseIt: {there: 100 * time.Millisecond}, releaseIt: {back: 200 * time.Millisecond}}[v]
		})
		stages[2].only(propose, path{back: 10 * time.Millisecond})
		l, err := claims.Take(t.Context(), d, askFor("x"))
		require.NoError(t, err)
		require.Equal(t, 1, stages[0].counted(raiseIt), "it is on its way")
		stages[2].only(releaseIt, hung)
		require.NoError(t, l.Release(t.Context()))
	})
}
