package postgres

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// waiters returns how many wait.
func waiters(t testing.TB, c *locker.Client, name string) int {
	t.Helper()
	s, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	return len(s.Waiters)
}

// waits has a Lock of m wait as number n of its lock.
func waits(t testing.TB, ctx context.Context, c *locker.Client, m *locker.Mutex, n int) <-chan error { //nolint:revive // t comes first
	t.Helper()
	done := async(func() error { return m.Lock(ctx) })
	eventually(t, "it waits", func() bool { return waiters(t, c, "x") == n })
	return done
}

const (
	notified   = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND " + inDatabase
	inDatabase = "datname = current_database()" // that the test has for itself
)

func TestQueue_aTryLockDoesNotOvertake(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	d := newDriverOf(t, url)
	c := newClient(t, url)
	m, next := c.Mutex("x"), newClient(t, url).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	locked := waits(t, t.Context(), c, next, 1)
	// The lock is free, and the one who waits has not been woken.
	execute(t, url, "UPDATE locker_locks SET owner = '' WHERE name = $1", []byte(prefixOf(t)+":x"))
	_, err := claims.Take(t.Context(), d, driver.Request{Name: prefixOf(t) + ":x", TTL: time.Minute})
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, await(t, locked), "it looks by itself")
	require.NoError(t, next.Unlock(t.Context()))
}

// A waiter whose process has died counts for 5 s.
func TestQueue_theDeadArePassedOver(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	c := newClient(t, url)
	m, next := c.Mutex("x"), newClient(t, url).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	execute(t, url, "INSERT INTO locker_locks_clients VALUES ('somebody', clock_timestamp() + interval '5 s')")
	execute(t, url, "INSERT INTO locker_locks_waiters SELECT 'somebody who has died...', key, 0, 60000000, '' FROM locker_locks WHERE name = $1", []byte(prefixOf(t)+":x"))
	locked := waits(t, t.Context(), c, next, 2)
	require.NoError(t, m.Unlock(t.Context()))
	require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, await(t, locked))
	require.NoError(t, next.Unlock(t.Context()))
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	assert.Empty(t, state.Waiters)
}

// The connection that listens is cut: waiters look, and there is another soon.
func TestQueue_theConnectionThatListensIsLost(t *testing.T) {
	t.Parallel()
	url := Database(t)
	c := newClient(t, url)
	m, next := c.Mutex("x"), newClient(t, url).Mutex("x")
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		locked := waits(t, t.Context(), c, next, 1)
		eventually(t, "it listens", func() bool { return value[bool](t, url, notified) })
		execute(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND "+inDatabase)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, await(t, locked))
		require.NoError(t, next.Unlock(t.Context()))
	}
}

// Statements of others may make ours fail under the stricter isolation levels, and are run again
// then.
func TestQueue_isolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		s := testserver.Postgres(t)
		execute(t, s.URL(), "ALTER ROLE postgres SET default_transaction_isolation = '"+level+"'")
		var all sync.WaitGroup
		counted, ctx := 0, withTimeout(t, 2*time.Minute)
		for range 8 {
			m := newClient(t, s.URL()).Mutex("x")
			all.Go(func() {
				for range 10 {
					assert.NoError(t, m.Do(ctx, func(context.Context) error { counted++; return nil }), level)
				}
			})
		}
		all.Wait()
		assert.Equal(t, 80, counted, level)
	}
}

// A release tells the next waiter in its own transaction: a program may end right after it.
func TestQueue_aReleaseTellsTheNext(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	c, next := newClient(t, url), newClient(t, url).Mutex("x")
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	locked := waits(t, t.Context(), c, next, 1)
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	waiter := state.Waiters[0].ID
	conn := session(t, url)
	_, err = conn.Exec(t.Context(), "LISTEN locker_"+waiter[:16])
	require.NoError(t, err)
	unlock(t, m)
	require.NoError(t, c.Close())
	for told := ""; told != waiter; { // else the listener has asked whether it hears
		n, err := conn.WaitForNotification(withTimeout(t, 20*time.Second))
		require.NoError(t, err)
		told = n.Payload
	}
	require.NoError(t, await(t, locked))
	unlock(t, next)
}

// A grant that was handed over within a Driver, and that its claim takes up late, as after a pause
// of the process, would soon be over: the server is asked instead.
func TestQueue_aGrantThatIsTakenUpLate(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	take(t, d, "x")
	c := queued(t, d, "x")
	now, _ := d.eras.current(c.TTL)
	c.handed.Store(&grant{token: 1, era: now.number, until: clock.Now().Add(c.TTL * 3 / 4)})
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
}

// lockRows has a transaction lock rows of the table until it is rolled back.
func lockRows(t *testing.T, url, which string) (rollback func()) {
	t.Helper()
	tx, err := session(t, url).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks "+which)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// A row that another transaction has locked keeps nobody else's hold from being renewed, and its
// own only until that ends.
func TestRenewal_besideALockedRow(t *testing.T) {
	t.Parallel()
	url := Database(t)
	const ttl = 5 * time.Second
	c := openURL(t, url, locker.WithTTL(ttl))
	ms := held(t, c, 3)
	rollback := lockRows(t, url, "WHERE name = 'locker:hold1' FOR SHARE")
	stillHeld(t, ttl, ms[0], ms[2])
	require.Zero(t, ms[1].FencingToken(), "its row cannot be written")
	rollback()
	unlock(t, ms[0], ms[2])

	// For less than the rest of its TTL it costs the hold nothing.
	m := c.Mutex("hold1")
	require.NoError(t, m.Lock(t.Context()))
	rollback = lockRows(t, url, "WHERE name = 'locker:hold1' FOR SHARE")
	time.Sleep(ttl / 2)
	rollback()
	stillHeld(t, ttl, m)
	unlock(t, m)
}

// Others lock the row one after the other, with no time between: a renewal has its turn.
func TestRenewal_ofARowThatOthersLockAllTheTime(t *testing.T) {
	t.Parallel()
	url := Database(t)
	pool, counts := poolOf(t, url)
	m := held(t, newClientOver(t, pool, locker.WithTTL(time.Minute)), 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var lockers []<-chan error
	for range 3 {
		conn := session(t, url)
		lockers = append(lockers, async(func() error {
			for ctx.Err() == nil {
				if _, err := conn.PgConn().Exec(t.Context(), "BEGIN; SELECT FROM locker_locks WHERE key <> '' FOR UPDATE; SELECT pg_sleep(0.1); COMMIT").ReadAll(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	eventually(t, "one has it, and another waits", func() bool {
		return value[bool](t, url, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+inDatabase)
	})
	var most int64
	for range 5 {
		most = max(most, counts.of(func() { require.NoError(t, m.Extend(t.Context())) }))
	}
	assert.Less(t, most, int64(20), "requests of one Extend")
	cancel()
	for _, done := range lockers {
		require.NoError(t, await(t, done))
	}
	unlock(t, m)
}

// Rows that others have locked, as many as the Client has connections, keep it from nothing that is
// about another lock.
func TestRelease_besideLockedRows(t *testing.T) {
	t.Parallel()
	url := Database(t)
	const ttl = 10 * time.Second
	c := openURL(t, url+"&pool_max_conns=2", locker.WithTTL(ttl))
	ms := held(t, c, 6)
	rollback := lockRows(t, url, "WHERE name IN ('locker:hold0', 'locker:hold1', 'locker:hold2') FOR UPDATE")
	var released []<-chan error
	for _, m := range ms[:3] {
		released = append(released, async(func() error { return m.Unlock(t.Context()) }))
	}
	time.Sleep(100 * time.Millisecond) // they wait for the rows
	require.NoError(t, ms[3].Extend(withTimeout(t, ttl/2)))
	require.NoError(t, ms[4].Unlock(withTimeout(t, ttl/2)))
	stillHeld(t, ttl, ms[3], ms[5])
	rollback()
	for _, done := range released {
		_ = await(t, done) // it has expired meanwhile
	}
	unlock(t, ms[3], ms[5])
}

// A Lock waits for a row that another transaction has locked in a statement that gives up soon:
// Locks of other names are behind it.
func TestLock_besideALockedRow(t *testing.T) {
	t.Parallel()
	url := Database(t)
	c := openURL(t, url, locker.WithTTL(time.Minute))
	m := held(t, c, 1)[0]
	unlock(t, m)
	rollback := lockRows(t, url, "FOR UPDATE")
	locked := async(func() error { return m.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		query := value[string](t, url, `SELECT coalesce(max(query), '') FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND `+inDatabase)
		require.NotContains(t, query, "UPDATE", "nothing ends that")
		return query != ""
	})
	rollback()
	require.NoError(t, await(t, locked))
	unlock(t, m)
}

// along has l release, and another claim c of its Driver ask in the same step. Its answer is a.
func along(t *testing.T, l *claim) (c *claim, a answer) {
	t.Helper()
	d := l.of
	now, _ := d.eras.current(l.TTL)
	c = waiter(d, l.Name)
	d.waiting.enter(c)
	r := c.rider(sent{l.hold.Load().era, d.seen.Get(l.key).version}, now.started)
	did, err := l.releaseWith(t.Context(), r)
	require.NoError(t, err)
	c.known = did
	return c, <-r.reply
}

// A release takes an ask along: in one statement, and waiters who came earlier have the lock first. One of
// another Driver is notified in it.
func TestQueue_aReleaseTakesAnAskAlong(t *testing.T) {
	t.Parallel()
	url := Database(t)
	d, other := newDriverOf(t, url), newDriverOf(t, url)
	d.waiting.running, other.waiting.running = true, true // so that nothing else wakes
	holder := waiter(d, "x")
	_, err := holder.Ask(t.Context())
	require.NoError(t, err)
	queue := []*claim{queued(t, d, "x"), queued(t, other, "x")}
	conn := session(t, url)
	_, err = conn.Exec(t.Context(), "LISTEN "+channelOf(other.waiting.id))
	require.NoError(t, err)
	for i := range 4 {
		var next *claim
		var a answer
		if holder.of == other {
			queue = append(queue, queued(t, d, "x"))
			require.NoError(t, holder.Release(t.Context()))
		} else {
			counts := d.pool.Config().ConnConfig.Tracer.(*counter)
			assert.EqualValues(t, 1, counts.of(func() { next, a = along(t, holder) }))
			require.Equal(t, []any{int64(isHeld), queue[0].owner}, []any{a.state, a.owner})
			queue = append(queue, next)
		}
		assert.Equal(t, i != 1 && i != 2, queue[0].handed.Load() != nil, "within the Driver, number %d", i)
		_, err = queue[0].Ask(t.Context())
		require.NoError(t, err)
		require.Greater(t, queue[0].Token(), holder.Token())
		holder, queue = queue[0], queue[1:]
	}
	n, err := conn.WaitForNotification(withTimeout(t, 20*time.Second))
	require.NoError(t, err)
	assert.Equal(t, channelOf(other.waiting.id), n.Channel)

	// Nobody else waits.
	for _, c := range queue {
		require.ErrorIs(t, c.Release(t.Context()), driver.ErrLost)
	}
	_, a := along(t, holder)
	assert.EqualValues(t, isGranted, a.state)
	require.NoError(t, holder.Release(t.Context()), "it was its own")
}

// What was sent for an ask that has been given up, or for a hold that is over, does nothing.
func TestQueue_aReleaseWithAnAskThatArrivesLate(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"an earlier version": "UPDATE locker_locks SET version = version + 1 WHERE key <> ''",
		"an earlier era":     "UPDATE locker_locks SET era = era + 1",
		"another holder":     "UPDATE locker_locks SET owner = 'another' WHERE key <> ''",
		"an expired hold":    "UPDATE locker_locks SET expires_at = clock_timestamp() WHERE key <> ''",
		"a dead client":      "UPDATE locker_locks_clients SET alive_until = clock_timestamp()",
	} {
		d := newTestDriver(t)
		d.waiting.running = true
		l := take(t, d, "x")
		queued(t, d, "x")
		require.NoError(t, d.exec(t.Context(), change))
		_, a := along(t, l)
		assert.Zero(t, a.state, what)
		var n int
		require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT count(*) FROM locker_locks_waiters").Scan(&n))
		assert.Equal(t, 1, n, what)
	}
}

// deafConn breaks instead of its next reply.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(p []byte) (n int, err error) {
	if n, err = c.Conn.Read(p); c.deaf.Swap(false) {
		return 0, io.EOF
	}
	return n, err
}

// A release was not answered that took an ask along: neither knows, and each is right when it is sent again.
func TestQueue_aReleaseWithAnAskThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	var deaf atomic.Bool
	d := newTestDriver(t, func(config *pgxpool.Config) {
		config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
			return deafConn{conn, &deaf}, nil
		}
	})
	d.waiting.running = true
	holder := take(t, d, "x")
	require.ErrorIs(t, queued(t, d, "x").Release(t.Context()), driver.ErrLost)
	now, last := d.eras.now, d.seen.Get(holder.key)
	c := waiter(d, "x")
	r := c.rider(sent{now.number, last.version}, now.started)
	d.riders.Store(string(c.key), r)
	deaf.Store(true)
	require.ErrorIs(t, holder.Release(t.Context()), io.ErrUnexpectedEOF)
	_, answered := <-r.reply
	require.False(t, answered, "it may have been granted the lock")
	var owner []byte
	require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT owner FROM locker_locks WHERE key <> ''").Scan(&owner))
	require.Equal(t, c.owner, owner, "it was")
	require.NoError(t, holder.Release(t.Context()))
	_, err := c.Ask(t.Context())
	require.NoError(t, err)
}

// handOvers has many goroutines of a Client want one name. It returns the statements of a hand-over.
func handOvers(t *testing.T, url string) float64 {
	t.Helper()
	pool, counts := poolOf(t, url)
	c := newClientOver(t, pool, locker.WithTTL(time.Minute))
	const goroutines, times = 16, 50
	var all sync.WaitGroup
	n := counts.of(func() {
		for range goroutines {
			all.Go(func() {
				for range times {
					assert.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
				}
			})
		}
		all.Wait()
	})
	return float64(n) / (goroutines * times)
}

// Most hand-overs are one statement. Where the functions are those of an earlier release, the one for that is
// made, or done without: an ask and a release are a statement each.
func TestQueue_requestsOfAHandOver(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	assert.Less(t, handOvers(t, s.URL()), 1.9)
	execute(t, s.URL(), "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	const missing = "DROP FUNCTION locker_locks_turn_v1"
	execute(t, s.URL(), missing)
	assert.Less(t, handOvers(t, strings.Replace(s.URL(), "postgres@", "app@", 1)), 2.5, "it may not be made")
	assert.Less(t, handOvers(t, s.URL()), 1.9)
	execute(t, s.URL(), missing) // it was there
}
