package redlock

import (
	"context"
	"errors"
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
	for _, s := range unreachable {
		s.always(path{err: errRefused})
	}
	l, err := claims.Take(t.Context(), d, askFor("x"))
	require.NoError(t, err)
	synctest.Wait()
	for _, s := range unreachable {
		s.on(nil)
	}
	return l.(*claim)
}

// befalls has something happen to each node: it is u, unreachable; s, silent; l, late with its
// answers; f, it has forgotten the lock; a, another has it now; or -, nothing.
func befalls(stages []*stage, what string) {
	for i, s := range stages {
		s.on(nil)
		switch what[i] {
		case 'u':
			s.always(path{err: errRefused})
		case 's':
			s.always(hung)
		case 'l':
			s.always(path{back: 50 * time.Millisecond})
		case 'f':
			forget(s)
		case 'a':
			s.edit("x", ownedBy(another, 0))
		}
	}
}

// A hold is lost when so many nodes had not had it all the time that another may have come and
// gone: those that have forgotten it, that another has, or that had not been reached and join. With
// fewer of them it goes on if a majority has it, and else it is an outage.
func TestHold_isWhatAMajorityHasHadAllTheTime(t *testing.T) {
	for _, steps := range []string{
		// what befalls the nodes, and what comes of it: a take, Extends, and a release, the last
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
		"----- ok, ----- ok, uu--- ok, --ff- ok, ----- ok",
		"----- ok, ----- ok, --fff lost, ----- lost",
		"---uu ok, --u-- ok, ----- ok, fuu-- outage, ----- ok",
		"---uu ok, f---- lost, ----- lost",
		"---ul ok, ----- ok, --us- ok, ----- ok",
		"---- ok, ---- ok, -f-- ok, ---- ok, -f-- ok",
		"---- ok, ---- ok, -ff- lost, ---- lost",
		// of a release
		"--- ok, --- ok, --u ok",
		"--- ok, --- ok, -ff lost",
		"--u ok, u-- outage",
		"--- ok, -u- ok",
	} {
		nodes := strings.IndexByte(steps, ' ')
		play(t, nodes, func(t *testing.T, d *backend, stages []*stage) {
			var l driver.Lease
			all := strings.Split(steps, ", ")
			for n, step := range all {
				what, want, _ := strings.Cut(step, " ")
				befalls(stages, what)
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
				if !strings.Contains(what, "l") && want != "outage" && !strings.HasPrefix(steps, "--u ok, -s-") {
					require.Zero(t, time.Since(start), "nothing is waited for: %s, at the end of %s", steps, all[:n+1])
				}
				time.Sleep(100 * time.Millisecond)
			}
			befalls(stages, strings.Repeat("-", nodes))
			time.Sleep(2 * maxRetry)
			for i, s := range stages {
				assert.Contains(t, []uint64{0, another}, s.ownerOf("x"), "%s: node %d", steps, i)
			}
		})
	}
}

// comeAndGo has a node forget the lock, and another client take it and release it.
func comeAndGo(t *testing.T, stages []*stage, forgets int) {
	t.Helper()
	forget(stages[forgets])
	other := stageDriver(t, stages)
	l, err := claims.Take(t.Context(), other, askFor("x"))
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	synctest.Wait()
	require.NoError(t, other.Close())
}

// An Extend that was interrupted, or is under way, has had a node join. Neither the next one nor a
// Release counts that node as one that always had the lock.
func TestExtend_doesNotCountWhatJoinedForAnother(t *testing.T) {
	for name, then := range map[string]func(ctx context.Context, l driver.Lease) error{
		"after one that was interrupted": func(ctx context.Context, l driver.Lease) error {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_ = l.Extend(short, ttl)
			return l.Extend(ctx, ttl)
		},
		"while one is under way": func(ctx context.Context, l driver.Lease) error {
			go func() { _ = l.Extend(ctx, ttl) }()
			time.Sleep(time.Millisecond)
			return l.Extend(ctx, ttl)
		},
		"a release while one is under way": func(ctx context.Context, l driver.Lease) error {
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
		befalls(stages, "---")
		l = taken(t, d)
		time.Sleep(ttl)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
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
				stages[i].edit("x", func(r *register) { *r = register{known: true, last: last} })
			}
			stages[2].only(propose, path{mute: true})
			l := taken(t, d)
			require.Equal(t, ahead+1, l.Token())
			time.Sleep(time.Second)
			stages[2].on(nil)
			require.True(t, stages[2].has("x"))
			other, err := claims.Take(t.Context(), d, askFor("y"))
			require.NoError(t, err)
			synctest.Wait()
			for _, err := range d.ExtendAll(t.Context(), []driver.Lease{l, other}, ttl) {
				require.NoError(t, err)
			}
			synctest.Wait()
			stages[2].edit("x", func(r *register) {
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
		all := make([]driver.Lease, maxBatch+2)
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
		for _, s := range stages {
			s.always(path{there: 499 * time.Millisecond})
		}
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
