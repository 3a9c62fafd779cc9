package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sqllock"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Rows of names that were not used for an hour are deleted, and their tokens go on rising. A page
// whose rows all stay does not stop a sweep: the rows after it have their turn.
func TestSweep_deletesWhatNobodyUses(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	exec := func(sql string, args ...any) { require.NoError(t, d.exec(t.Context(), sql, args...)) }
	last := uint64(0)
	for _, name := range []string{"waited for", "ahead", "unused"} {
		l := take(t, d, name)
		require.NoError(t, l.Release(t.Context()))
		last = max(last, l.Token())
	}
	kept := take(t, d, "held")
	require.NoError(t, kept.Extend(t.Context(), time.Hour))
	const page = sweepRows + 10
	for begin, expires := range map[string]string{"a": "infinity", "b": "now"} {
		exec(`INSERT INTO locker_locks (key, name, era, version, token, owner, metadata, expires_at, former, waited, served)
			SELECT ($1 || lpad(i::text, 5, '0'))::bytea, '', 1, 1, i, '', '', $2::timestamptz, '', false, 0 FROM generate_series(1, $3::int) AS i`,
			begin, expires, page)
	}
	sweep := func() (deleted int64) {
		d.sweeper.From = []byte{}
		for range 4 { // each looks at a part of the table
			n, err := d.sweep(t.Context())
			require.NoError(t, err)
			assert.LessOrEqual(t, n, int64(sweepRows))
			deleted += n
		}
		return deleted
	}
	assert.Zero(t, sweep(), "an hour is not over")

	// A lock for which somebody waits, and one whose token is ahead of the clock, which was set
	// back.
	exec("INSERT INTO locker_locks_clients VALUES ('somebody', clock_timestamp() + interval '1 hour')")
	exec("INSERT INTO locker_locks_waiters SELECT 'somebody who waits', key, 1, 1, '' FROM locker_locks WHERE name = 'waited for'")
	exec("UPDATE locker_locks SET token = token + 3600 * 1000000::bigint WHERE name = 'ahead'")
	d.idle = -time.Minute // as if later
	exec("UPDATE locker_locks SET expires_at = clock_timestamp() + interval '1 minute' WHERE key = ''")
	assert.Zero(t, sweep(), "in the grace")
	exec("UPDATE locker_locks SET expires_at = clock_timestamp() - interval '1 minute' WHERE key = ''")
	assert.EqualValues(t, page+2, sweep())
	assert.Equal(t, page+3, rowsOf(t, d), "what is held or waited for, and that of the era")
	require.NoError(t, kept.Extend(t.Context(), time.Minute))
	assert.Greater(t, take(t, d, "unused").Token(), last)
	assert.Greater(t, take(t, d, "ahead").Token(), last+3600*1000000-uint64(time.Minute.Microseconds()))
}

// Programs that live for less than a minute sweep now and then, each other rows.
func TestSweep_ofShortLivedPrograms(t *testing.T) {
	t.Parallel()
	const programs = 1000
	due, begun := 0, map[string]bool{}
	for range programs {
		s := sqllock.NewSweeper(sweepRows)
		if s.Due() < time.Minute/4 {
			due++
		}
		begun[string(s.From)] = true
	}
	assert.Greater(t, due, programs/10)
	assert.Len(t, begun, programs)
}

// Sweeps are due by themselves: after a minute, or when a Driver has made many rows.
func TestSweep_isDueWhenManyRowsWereMade(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	d.idle = time.Millisecond
	for i := range 10 * (sweepRows / 10) {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: fmt.Sprint("name", i), TTL: 50 * time.Millisecond})
		require.NoError(t, err)
		_ = l.Release(context.Background()) // it may have expired
	}
	d.sweeper.Close()
	assert.Less(t, rowsOf(t, d), 5*(sweepRows/10))
}

// A connection has used every statement while the tables were small. Once they have grown none reads
// all of a table, as a plan of before would: its session has statistics of before, too.
func TestStatements_afterTheTableHasGrown(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.PostgresSettings("autovacuum=off", "plan_cache_mode=force_generic_plan"))
	config, err := pgxpool.ParseConfig(s.URL() + "&pool_max_conns=1")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	d := newDriver(pool, "")
	exec := func(sql string, args ...any) { require.NoError(t, d.exec(t.Context(), sql, args...)) }
	other, err := pgxpool.New(t.Context(), s.URL())
	require.NoError(t, err)
	defer other.Close()
	second := newDriver(other, "")
	use := func() {
		for range 2 {
			l := waiter(d, "name")
			_, err := l.Ask(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Extend(t.Context(), time.Minute))
			next, mine := queued(t, second, "name"), queued(t, d, "name")
			d.waiting.beat(time.Minute)
			state, err := d.Inspect(t.Context(), "name")
			require.NoError(t, err)
			require.Len(t, state.Waiters, 2)
			require.ErrorIs(t, mine.Release(t.Context()), driver.ErrLost, "it only waited")
			last, a := along(t, l)
			require.EqualValues(t, isHeld, a.state, "it tells the waiter")
			require.NoError(t, next.Release(t.Context()), "so does this")
			require.NoError(t, last.Release(t.Context()))
			for range 2 { // the first hears that nobody waits any more
				l = waiter(d, "name")
				_, err := l.Ask(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
			}
			_, _, err = d.register(t.Context(), time.Minute, false)
			require.NoError(t, err)
			_, err = d.List("")(t.Context())
			require.NoError(t, err)
			_, err = d.sweep(t.Context())
			require.NoError(t, err)
		}
	}
	_, err = d.enter(t.Context(), time.Minute)
	if noTable(err) {
		require.NoError(t, d.makeTables(t.Context()))
	}
	exec("VACUUM ANALYZE")
	use()
	const grown = 20000
	exec(`INSERT INTO locker_locks SELECT sha256(i::text::bytea), '', era, version, token, '', '', clock_timestamp(), '', false, 0
		FROM locker_locks, generate_series(1, $1::int) AS i WHERE key = ''`, grown)
	exec(`INSERT INTO locker_locks_waiters SELECT sha256(i::text::bytea), sha256(i::text::bytea), i, 1, ''
		FROM generate_series(1, $1::int) AS i`, grown)
	use()
	require.NoError(t, d.Close())
	pool.Close() // its sessions count what they have read when they end
	defer func() { _ = second.Close() }()
	read := func(sessions string) (n int64) {
		require.NoError(t, second.pool.QueryRow(t.Context(), sessions).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool {
		return read("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") <= int64(other.Stat().TotalConns())+1+1
	}, time.Minute, time.Millisecond)
	assert.Less(t, read("SELECT max(seq_tup_read) FROM pg_stat_user_tables"), int64(grown), "rows that were read one after the other")
}

// A release reads the first waiter, and does not sort all of them, as is planned for some numbers of
// them.
func TestRelease_readsFewRowsOfALongQueue(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.PostgresSettings("autovacuum=off", "plan_cache_mode=force_generic_plan"))
	d := newDriverOf(t, s.URL()+"&pool_max_conns=1")
	exec := func(sql string) { require.NoError(t, d.exec(t.Context(), sql)) }
	fetched := func() (n int64) {
		exec("SELECT pg_stat_force_next_flush()")
		require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'locker_locks_waiters'").Scan(&n))
		return n
	}
	for _, name := range []string{"alone", "along"} {
		l := take(t, d, name)
		queued(t, d, name)
		exec("INSERT INTO locker_locks_clients VALUES ('somebody', clock_timestamp() + interval '1 hour') ON CONFLICT DO NOTHING")
		exec(`INSERT INTO locker_locks_waiters SELECT 'somebody' || sha256(name || i::text::bytea), key, i + 1, 1, ''
			FROM locker_locks, generate_series(1, 1500) AS i WHERE name = '` + name + "'")
		before := fetched()
		if name == "alone" {
			require.NoError(t, l.Release(t.Context()))
		} else {
			_, a := along(t, l)
			require.EqualValues(t, isHeld, a.state)
		}
		assert.Less(t, fetched()-before, int64(20), name)
	}
}
