package sqltest_test

import (
	"database/sql"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
)

// plain is the level that users get who choose none.
func (d *database) plain() level { return level{name: "default"} }

func TestExec_refusesAStaleWriteAndLetsTheSameHolderWriteAgain(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
		for _, write := range []struct {
			token uint64
			stale bool
		}{{5, false}, {5, false}, {4, true}, {7, false}, {5, true}, {math.MaxInt64, false}, {7, true}} {
			query, args := d.update("written", write.token)
			err := sqlfence.Exec(t.Context(), db, "accounts/1", write.token, query, args...)
			if write.stale {
				var stale *fence.StaleError
				require.ErrorAs(t, err, &stale)
				assert.Equal(t, fence.StaleError{Resource: "accounts/1", Token: write.token}, *stale)
			} else {
				require.NoError(t, err, write.token)
				_, token := account(t, db)
				assert.Equal(t, write.token, token)
			}
		}
		_, token := account(t, db)
		assert.Equal(t, uint64(math.MaxInt64), token)
	})
}

func TestColumn_saysWhyNothingWasWritten(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		d.exec(t, db, `INSERT INTO accounts (id, state, token) VALUES (1, 'new', 7)`)
		write := func(token uint64, query string, args ...any) error {
			return d.column().Exec(t.Context(), db, args[len(args)-2], token, d.sql(query), args...)
		}
		const update = `UPDATE accounts SET token = ?, state = ? WHERE id = ? AND token <= ?`

		var stale *fence.StaleError
		require.ErrorAs(t, write(6, update, 6, "x", 1, 6), &stale)
		assert.Equal(t, fence.StaleError{Resource: "accounts/1", Token: 6, Newest: 7}, *stale)

		err := write(8, update, 8, "x", 2, 8)
		require.ErrorIs(t, err, sqlfence.ErrNoRow)
		require.ErrorContains(t, err, `"accounts/2"`)
		require.NotErrorIs(t, err, fence.ErrStale)

		const further = `UPDATE accounts SET token = ?, state = ? WHERE state = 'open' AND id = ? AND token <= ?`
		require.ErrorIs(t, write(8, further, 8, "x", 1, 8), sqlfence.ErrNoRow, "another condition is not met")

		_, token := account(t, db)
		assert.Equal(t, uint64(7), token)

		d.exec(t, db, `DROP TABLE accounts`)
		require.NotEmpty(t, d.code(write(8, update, 8, "x", 1, 8)), "the database's own error is within reach")
		d.exec(t, db, `CREATE TABLE accounts (id INTEGER, state VARCHAR(100), token BIGINT)`)
		d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new'), (1, 'new')`)
		err = write(8, update, 8, "x", 1, 8)
		require.ErrorIs(t, err, fence.ErrUnknown)
		require.NotErrorIs(t, err, sqlfence.ErrNoRow)
		require.ErrorContains(t, err, "NULL")
		if d.dialect == sqlfence.SQLite { // which keeps anything in any column
			d.exec(t, db, `UPDATE accounts SET token = 'no token'`)
			require.ErrorIs(t, write(8, update, 8, "x", 1, 8), fence.ErrUnknown)
		}
		d.exec(t, db, `UPDATE accounts SET token = 0`)
		require.ErrorContains(t, write(8, update, 8, "x", 1, 8), "2 rows were written")
	})
}

// A holder that repeats a write that changes nothing, having not heard of the first: MySQL's drivers count the rows that changed.
func TestExec_repeatedWriteThatChangesNothing(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
		args := []any{"paid", 5, 1, 5}
		require.NoError(t, sqlfence.Exec(t.Context(), db, "accounts/1", 5, d.sql(update), args...))
		err := sqlfence.Exec(t.Context(), db, "accounts/1", 5, d.sql(update), args...)
		if d.dialect == sqlfence.MySQL {
			require.ErrorIs(t, err, fence.ErrStale, "as documented")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, d.column().Exec(t.Context(), db, 1, 5, d.sql(update), args...), "with its column known")
	})
}

func TestExec_withClientFoundRows(t *testing.T) {
	d := mariaDB(t)
	db := d.fresh(t, level{params: "clientFoundRows=true"})
	d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
	for range 2 {
		require.NoError(t, sqlfence.Exec(t.Context(), db, "accounts/1", 5, update, "paid", 5, 1, 5))
	}
	require.ErrorIs(t, sqlfence.Exec(t.Context(), db, "accounts/1", 4, update, "paid", 4, 1, 4), fence.ErrStale)

	// Now a row that is not written despite its token, which is the holder's, has not met another condition.
	const further = `UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ? AND state = 'open'`
	require.ErrorIs(t, d.column().Exec(t.Context(), db, 1, 5, further, "paid", 5, 1, 5), sqlfence.ErrNoRow)
}

// In the snapshot of MariaDB's REPEATABLE READ the row still has the holder's own token, as if it had written what is there.
func TestColumn_seesThroughASnapshot(t *testing.T) {
	runLevels(t, func(t *testing.T, d *database, l level, db *sql.DB) {
		if l.tx == sql.LevelSerializable || d.dialect == sqlfence.SQLite {
			t.Skip("here the newer write would wait for the older transaction to end")
		}
		d.exec(t, db, `INSERT INTO accounts (id, state, token) VALUES (1, 'new', 1)`)
		old := l.begin(t, db)
		_, token := account(t, old)
		require.Equal(t, uint64(1), token)
		query, args := d.update("newer", 2)
		require.NoError(t, d.column().Exec(t.Context(), db, 1, 2, query, args...))

		query, args = d.update("older", 1)
		err := d.column().Exec(t.Context(), old, 1, 1, query, args...)
		require.Error(t, err)
		if d.code(err) == "" {
			var stale *fence.StaleError
			require.ErrorAs(t, err, &stale)
			assert.Equal(t, uint64(2), stale.Newest)
		}
		require.NoError(t, old.Rollback())
		assertNewest(t, db)
	})
}

// A row that may be missing. MySQL's upsert takes no condition, and is refused.
func TestExec_insertsARowThatIsMissing(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		write := func(state string, token uint64) error {
			if d.dialect != sqlfence.MySQL {
				return sqlfence.Exec(t.Context(), db, "accounts/1", token, d.sql(`INSERT INTO accounts (id, state, token) VALUES (?, ?, ?)
					ON CONFLICT (id) DO UPDATE SET state = excluded.state, token = excluded.token
					WHERE accounts.token <= excluded.token`), 1, state, token)
			}
			d.exec(t, db, `INSERT INTO accounts (id) VALUES (?) ON DUPLICATE KEY UPDATE id = id`, 1)
			return d.column().Exec(t.Context(), db, 1, token, `UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ?`, state, token, 1, token)
		}
		require.NoError(t, write("first", 1))
		require.NoError(t, write("first", 1))
		require.NoError(t, write("newer", 2))
		require.ErrorIs(t, write("older", 1), fence.ErrStale)
		assertNewest(t, db)
	})
}
