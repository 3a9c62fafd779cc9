package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// lazyFlush has a crash lose what was committed in the last seconds, unless its transaction has
// asked for more.
var lazyFlush = testserver.PostgresSettings("synchronous_commit=off", "wal_writer_delay=10s")

// The server loses its unlogged tables. Holds go on with their tokens, nobody else gets in, and a
// name that was free is granted after the grace.
func TestHolds_surviveTheLossOfTheTable(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	for name, start := range map[string]func(t *testing.T) (url string, lose func()){
		"kill -9": func(t *testing.T) (string, func()) {
			t.Helper()
			s := testserver.Postgres(t, lazyFlush)
			return s.URL(), func() {
				s.Kill()
				s.Restart()
			}
		},
		"promotion of an asynchronous standby": func(t *testing.T) (string, func()) {
			t.Helper()
			primary := testserver.Postgres(t)
			r := &replication{primary, primary.Standby(), false}
			r.follows(t)
			url := strings.Replace(primary.URL(), primary.Addr(), primary.Addr()+","+r.standby.Addr(), 1)
			return url, func() {
				until(t, r.primary, replayed) // the standby has the TTL
				r.primary.Kill()
				value[any](t, r.standby.URL(), "SELECT pg_promote()")
			}
		},
		"restore from a backup": func(t *testing.T) (string, func()) {
			t.Helper()
			s := testserver.Postgres(t)
			unlock(t, held(t, openURL(t, s.URL(), locker.WithTTL(ttl)), 1)...) // the TTL is in the backup
			return s.URL(), s.Backup()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, lose := start(t)
			c, other := openURL(t, url, locker.WithTTL(ttl)), openURL(t, url, locker.WithTTL(ttl))
			ms := held(t, c, 3)
			var tokens []uint64
			for _, m := range ms {
				tokens = append(tokens, m.FencingToken())
			}
			m := other.Mutex("fresh")
			require.NoError(t, m.Lock(t.Context()))
			last := m.FencingToken() // which the server forgets
			unlock(t, m)
			lose()
			lost, early := time.Now(), time.Time{}
			fresh := async(func() error {
				for {
					err := m.Lock(t.Context())
					if err == nil || t.Context().Err() != nil {
						early = time.Now()
						return err
					}
				}
			})
			for time.Since(lost) < ttl*3/2 {
				for i, m := range ms {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					require.Error(t, other.Mutex("hold"+string(rune('0'+i))).TryLock(ctx))
					cancel()
					require.Equal(t, tokens[i], m.FencingToken(), "the hold goes on")
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.NoError(t, await(t, fresh))
			assert.Greater(t, early.Sub(lost), ttl/2, "it might have been held")
			assert.Greater(t, m.FencingToken(), last)
			unlock(t, ms...)
			for i := range ms {
				next := other.Mutex("hold" + string(rune('0'+i)))
				require.NoError(t, next.Lock(t.Context()))
				assert.Greater(t, next.FencingToken(), tokens[i])
			}
		})
	}
}

// A hold that is given back in the grace, before it was renewed, is given back: Unlock succeeds,
// and the name is free.
func TestUnlock_inTheGrace(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	pool, _ := poolOf(t, s.URL())
	c := newClientOver(t, pool, locker.WithTTL(time.Hour))
	m := held(t, c, 1)[0]
	first := m.FencingToken()
	s.Kill()
	s.Restart()
	pool.Reset() // a release on a connection of before would not be answered
	other := openURL(t, s.URL(), locker.WithTTL(time.Minute))
	require.ErrorIs(t, other.Mutex("hold0").TryLock(t.Context()), locker.ErrHeld)
	eventually(t, "it is released", func() bool {
		err := m.Unlock(t.Context())
		require.NotErrorIs(t, err, locker.ErrLost)
		require.NotErrorIs(t, err, locker.ErrNotHeld)
		return err == nil
	})
	next := other.Mutex("hold0")
	require.NoError(t, next.TryLock(t.Context()), "its row is known")
	assert.Greater(t, next.FencingToken(), first)
	require.ErrorIs(t, other.Mutex("another").TryLock(t.Context()), locker.ErrHeld, "it may be held for an hour")
	unlock(t, next)
	require.NoError(t, c.Close())
	require.NoError(t, other.Close())
	last := openURL(t, s.URL(), locker.WithTTL(5*time.Second)).Mutex("another")
	eventually(t, "nobody is left who may hold it for an hour", func() bool { return last.TryLock(t.Context()) == nil })
	unlock(t, last)
}

// A holder whose clock stood still, and who knows of no loss, reclaims first: the present holder has
// the larger token, and gets the row.
func TestReclaim_theLargerTokenDecides(t *testing.T) {
	t.Parallel()
	url := Database(t)
	first := take(t, newDriverOf(t, url), "x")
	execute(t, url, "UPDATE locker_locks SET expires_at = now() WHERE key = sha256('x')")
	second := take(t, newDriverOf(t, url), "x")
	execute(t, url, "TRUNCATE locker_locks")
	require.NoError(t, first.Extend(t.Context(), time.Minute))
	require.NoError(t, second.Extend(t.Context(), time.Minute))
	require.ErrorIs(t, first.Extend(t.Context(), time.Minute), driver.ErrLost)
	require.ErrorIs(t, first.Release(t.Context()), driver.ErrLost)
	require.NoError(t, second.Release(t.Context()))
}

// A hold was ended by force, another was granted the lock, and then the server loses its tables,
// before the first has heard of it. The first reclaims nothing.
func TestForceRelease_beforeTheLoss(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, lazyFlush)
	c, other := openURL(t, s.URL(), locker.WithTTL(time.Minute)), openURL(t, s.URL(), locker.WithTTL(time.Minute))
	ms := held(t, c, 2)
	var next []*locker.Mutex
	for i := range ms {
		name := "hold" + string(rune('0'+i))
		state, err := other.Inspect(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, other.ForceRelease(t.Context(), name, state))
		next = append(next, other.Mutex(name))
		require.NoError(t, next[i].TryLock(t.Context()))
	}
	s.Kill()
	s.Restart()
	eventually(t, "it is lost", func() bool { return errors.Is(ms[0].Extend(t.Context()), locker.ErrLost) })
	eventually(t, "so is the other", func() bool { return errors.Is(ms[1].Unlock(t.Context()), locker.ErrLost) })
	for _, m := range next {
		token := m.FencingToken()
		eventually(t, "the other has it again", func() bool { return m.Extend(t.Context()) == nil })
		assert.Equal(t, token, m.FencingToken())
	}
	unlock(t, next...)
}

// Many who wait for one name do not keep each other, or a hold of another name, from what is
// theirs. Neither holds nor waiters have a connection of the pool, so one is enough.
func TestQueue_ofAThousand(t *testing.T) {
	t.Parallel()
	c := openURL(t, testserver.SharedPostgres(t).URL()+"&pool_max_conns=1", locker.WithPrefix(prefixOf(t)))
	idle := c.Mutex("idle")
	require.NoError(t, idle.Lock(t.Context()))
	token := idle.FencingToken()
	ctx := withTimeout(t, 3*time.Minute)
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() { assert.NoError(t, c.Mutex("x").Do(ctx, func(context.Context) error { return nil })) })
	}
	all.Wait()
	require.Equal(t, token, idle.FencingToken())
	require.NoError(t, idle.Unlock(t.Context()))
}

// An Unlock succeeds where notifications fail, or where the server's queue of them is full and a
// commit with one fails. Waiters ask by themselves.
func TestUnlock_whereNotificationsFail(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]string{
		"refused": "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC",
		"full": `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF current_setting('synchronous_commit') = 'off' THEN -- which goes with a notification
					RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = 'program_limit_exceeded';
				END IF;
				RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON locker_locks DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW WHEN (OLD.waited AND NEW.owner <> OLD.owner) EXECUTE FUNCTION refuse();`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Postgres(t)
			grant := strings.ReplaceAll(pageLine(t, "GRANT SELECT"), "jobs.", "locker_")
			execute(t, s.URL(), Schema("")+"CREATE ROLE app LOGIN;"+grant+";"+breaks)
			url := strings.Replace(s.URL(), "postgres@", "app@", 1)
			c := openURL(t, url)
			m, next := c.Mutex("x"), openURL(t, url).Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			locked := waits(t, t.Context(), c, next, 1)
			require.NoError(t, m.Unlock(withTimeout(t, 20*time.Second)))
			require.NoError(t, await(t, locked), "it asks by itself")
			unlock(t, next)
		})
	}
}

// A Driver listens while somebody waits, and not for ever.
func TestListener_endsWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	url := Database(t)
	c := openURL(t, url)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	next := openURL(t, url).Mutex("x")
	locked := waits(t, t.Context(), c, next, 1)
	eventually(t, "it listens", func() bool { return value[bool](t, url, notified) })
	unlock(t, m)
	require.NoError(t, await(t, locked))
	eventually(t, "it listens no more", func() bool { return !value[bool](t, url, notified) })
	unlock(t, next)
}

// An operator deletes old rows, and with them that of the era. The names that have rows are granted
// again when the grace is over.
func TestLock_afterTheRowOfTheEraWasDeleted(t *testing.T) {
	t.Parallel()
	url := Database(t)
	const ttl = 2 * time.Second
	c, other := openURL(t, url, locker.WithTTL(ttl)), openURL(t, url, locker.WithTTL(ttl))
	ms := held(t, c, 2)
	unlock(t, ms[0])
	execute(t, url, "DELETE FROM locker_locks WHERE key = ''")
	next := other.Mutex("hold0")
	require.NoError(t, next.Lock(withTimeout(t, 5*ttl)))
	require.ErrorIs(t, other.Mutex("hold1").TryLock(t.Context()), locker.ErrHeld)
	unlock(t, next, ms[1])
	last := other.Mutex("hold1")
	require.NoError(t, last.Lock(withTimeout(t, 5*ttl)))
	unlock(t, last)
}

// The server was shut down, its clock was set, and it was started: rows are there, and the times in
// them say nothing. Whoever held goes on, whether the clock went forward or back.
func TestHolds_surviveACleanStopAfterWhichTheClockIsSet(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Postgres(t, testserver.PostgresClock())
			const ttl = 12 * time.Second
			take := func(name string) *locker.Client {
				c := openURL(t, s.URL(), locker.WithTTL(ttl))
				m := c.Mutex(name)
				require.NoError(t, m.Lock(t.Context()))
				unlock(t, m)
				return c
			}
			c, other := take("x"), take("x")
			m := c.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			token := m.FencingToken()
			waiter := async(func() error { return other.Mutex("y").Lock(t.Context()) })
			require.NoError(t, await(t, waiter))
			pid := s.PID()
			require.NoError(t, syscall.Kill(pid, syscall.SIGINT))
			eventually(t, "the server has shut down", func() bool { return syscall.Kill(pid, 0) != nil })
			s.ShiftClock(by)
			s.Restart()
			began := time.Now()
			next := other.Mutex("x")
			eventually(t, "connections of before are given up", func() bool {
				err := next.TryLock(t.Context())
				require.Error(t, err)
				return errors.Is(err, locker.ErrHeld)
			})
			for time.Since(began) < ttl*3/2 {
				require.ErrorIs(t, next.TryLock(t.Context()), locker.ErrHeld)
				require.Equal(t, token, m.FencingToken())
				time.Sleep(50 * time.Millisecond)
			}
			unlock(t, m)
			require.NoError(t, next.TryLock(t.Context()))
			assert.Greater(t, next.FencingToken(), token)
			unlock(t, next)
		})
	}
}
