package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testwait"
)

const update = `UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ?`

// plain is the level that users get who choose none.
func (d *database) plain() level { return level{name: "default"} }

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
		exec := func(token uint64) error {
			return sqlfence.Exec(t.Context(), db, "accounts/1", token, d.sql(update), "paid", token, 1, token)
		}
		require.NoError(t, exec(5))
		err := exec(5)
		if d.dialect == sqlfence.MySQL {
			require.ErrorIs(t, err, fence.ErrStale, "as documented")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, d.column().Exec(t.Context(), db, 1, 5, d.sql(update), "paid", 5, 1, 5), "with its column known")
		require.NoError(t, exec(math.MaxInt64))
		require.Equal(t, &fence.StaleError{Resource: "accounts/1", Token: 5}, exec(5))
	})
}

func TestExec_withClientFoundRows(t *testing.T) {
	d := mariaDB(t)
	db := d.fresh(t, level{params: "clientFoundRows=true"})
	for range 2 { // of a row that may be missing: MySQL's upsert takes no condition
		d.exec(t, db, `INSERT INTO accounts (id) VALUES (1) ON DUPLICATE KEY UPDATE id = id`)
		require.NoError(t, sqlfence.Exec(t.Context(), db, "accounts/1", 5, update, "paid", 5, 1, 5))
	}
	require.ErrorIs(t, sqlfence.Exec(t.Context(), db, "accounts/1", 4, update, "paid", 4, 1, 4), fence.ErrStale)

	// Now a row that is not written despite its token, which is the holder's, has not met another condition.
	const further = `UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ? AND state = 'open'`
	require.ErrorIs(t, d.column().Exec(t.Context(), db, 1, 5, further, "paid", 5, 1, 5), sqlfence.ErrNoRow)
}

func (d *database) admit(ctx context.Context, l level, db *sql.DB, resource string, token uint64) error {
	tx, err := l.tryBegin(ctx, db)
	if err != nil {
		return err
	}
	return finish(tx, d.table().Admit(ctx, tx, resource, token))
}

// Two transactions at once, of a resource that nobody has seen and of one that is known. TestLevels has
// those in which the first commits, and the tokens differ.
func TestAdmit_takesTurns(t *testing.T) {
	tests := map[string]turns{
		"the raise of one that is rolled back is undone":    {first: 2, second: 1},
		"one that is rolled back leaves nothing to a newer": {first: 1, second: 2},
		"two of one holder": {first: 1, second: 1, commits: true},
	}
	runLevels(t, func(t *testing.T, d *database, l level, db *sql.DB) {
		for name, test := range tests {
			t.Run(name+", of a new resource", func(t *testing.T) { test.run(t, d, l, db, "new "+name) })
			t.Run(name, func(t *testing.T) {
				require.NoError(t, d.admit(t.Context(), l, db, name, 1))
				test.run(t, d, l, db, name)
			})
		}
	})
}

type turns struct {
	first, second uint64
	commits       bool // the first
}

func (turns turns) run(t *testing.T, d *database, l level, db *sql.DB, resource string) {
	first := l.begin(t, db)
	require.NoError(t, d.table().Admit(t.Context(), first, resource, turns.first))
	second := testwait.Go(func() error { return d.admit(t.Context(), l, db, resource, turns.second) })
	var err error
	waiting := d.waits(t, db, second)
	if !waiting {
		err = <-second
		require.True(t, d.comeAgain(err), "it is not told to come again, but %v", err)
	}
	if turns.commits {
		require.NoError(t, first.Commit())
	} else {
		require.NoError(t, first.Rollback())
	}
	if waiting {
		err = patience.Result(t, second)
	}
	if d.comeAgain(err) {
		err = d.admit(t.Context(), l, db, resource, turns.second)
	}
	require.NoError(t, err)
}

func TestAdmit_tellsNamesApartByteByByte(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		names := []string{
			"a", "A", "a ", " a", "ä", "Ä", "a\u0308", "a\t", "a/b", `a"b`, "a'b", "ß", "ss", "%", "?", "$1", "\U0001F512",
			strings.Repeat("x", 1024), strings.Repeat("x", 1023),
		}
		for _, name := range names {
			require.NoError(t, d.admit(t.Context(), d.plain(), db, name, 9), "%q", name)
		}
		for i, name := range names {
			require.NoError(t, d.admit(t.Context(), d.plain(), db, name, uint64(10+i)), "%q", name)
		}
		var n int
		require.NoError(t, db.QueryRow(`SELECT count(*) FROM fencing_tokens`).Scan(&n))
		assert.Equal(t, len(names), n)
	})
}

// In a table that is not as Create makes it.
func TestAdmit_refusesARowWithoutAToken(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		d.exec(t, db, `DROP TABLE fencing_tokens`)
		d.exec(t, db, `CREATE TABLE fencing_tokens (resource VARCHAR(100) PRIMARY KEY, token BIGINT)`)
		d.exec(t, db, `INSERT INTO fencing_tokens (resource) VALUES ('r')`)
		unknown := func() {
			t.Helper()
			require.ErrorIs(t, d.admit(t.Context(), d.plain(), db, "r", 7), fence.ErrUnknown)
			err := d.table().Guard(db).Write(t.Context(), "r", 7, func(context.Context) error {
				t.Error("nobody is let through")
				return nil
			})
			require.ErrorIs(t, err, fence.ErrUnknown)
			require.NotErrorIs(t, err, fence.ErrStale)
			require.ErrorContains(t, err, `sqlfence: "r": `)
		}
		unknown()
		if d.dialect == sqlfence.SQLite { // which keeps anything in any column
			d.exec(t, db, `UPDATE fencing_tokens SET token = 'no token'`)
			unknown()
		}
	})
}

func TestCreate_byManyAtOnceAndAgain(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		l := d.plain()
		if d.dialect == sqlfence.SQLite {
			l.params = "_pragma=busy_timeout(60000)"
		}
		db := d.fresh(t, l)
		name := map[sqlfence.Dialect]string{sqlfence.Postgres: "public.seen", sqlfence.MySQL: "locker.seen", sqlfence.SQLite: "main.seen"}
		table := sqlfence.Table{Dialect: d.dialect, Name: name[d.dialect]}
		for range 5 {
			d.exec(t, db, `DROP TABLE IF EXISTS seen`)
			var created []<-chan error
			for range 8 {
				created = append(created, testwait.Go(func() error { return table.Create(t.Context(), db) }))
			}
			for _, done := range created {
				require.NoError(t, patience.Result(t, done))
			}
		}
		for _, token := range []uint64{3, 2} {
			tx := l.begin(t, db)
			err := finish(tx, table.Admit(t.Context(), tx, "r", token))
			require.Equal(t, token == 2, errors.Is(err, fence.ErrStale), "%v", err)
		}
		require.NoError(t, table.Create(t.Context(), db))
		tx := l.begin(t, db)
		require.ErrorIs(t, table.Admit(t.Context(), tx, "r", 2), fence.ErrStale, "Create has left the table as it was")
	})
}

// A savepoint that comes before Admit takes the mark with it, though the transaction commits.
func TestAdmit_afterASavepointIsUndoneWithIt(t *testing.T) {
	runLevels(t, func(t *testing.T, d *database, l level, db *sql.DB) {
		require.NoError(t, d.admit(t.Context(), l, db, "r", 1))
		tx, err := l.tryBegin(t.Context(), db)
		require.NoError(t, err)
		exec := func(statement string) {
			_, err := tx.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		exec("SAVEPOINT before_admit")
		require.NoError(t, d.table().Admit(t.Context(), tx, "r", 7))
		exec("ROLLBACK TO SAVEPOINT before_admit")
		require.NoError(t, finish(tx, nil))
		require.NoError(t, d.admit(t.Context(), l, db, "r", 2), "nobody has seen the 7")
	})
}

func runGuard(t *testing.T, test func(t *testing.T, d *database, db *sql.DB, g fence.Guard)) {
	run(t, func(t *testing.T, d *database) {
		l := d.plain()
		if d.dialect == sqlfence.SQLite {
			l.params = "_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)"
		}
		db := d.fresh(t, l)
		test(t, d, db, d.table().Guard(db))
	})
}

func nothing(context.Context) error { return nil }

func TestGuard_keepsTheRule(t *testing.T) {
	runGuard(t, func(t *testing.T, _ *database, _ *sql.DB, g fence.Guard) {
		for _, s := range fencecheck.Scenarios() {
			if s.Name == "64 bits" || s.Name == "the largest" {
				continue // a BIGINT has 63
			}
			t.Run(s.Name, func(t *testing.T) { require.NoError(t, s.Check(t.Context(), fencecheck.Of(g, s.Name, nil))) })
		}
	})
}

func TestGuard_ofAWriteThatFailsHasSeenItsToken(t *testing.T) {
	runGuard(t, func(t *testing.T, _ *database, _ *sql.DB, g fence.Guard) {
		failed := errors.New("failed")
		require.Equal(t, failed, g.Write(t.Context(), "r", 7, func(context.Context) error { return failed }), "as it is")
		require.ErrorIs(t, g.Write(t.Context(), "r", 6, nothing), fence.ErrStale)
		assert.Panics(t, func() { _ = g.Write(t.Context(), "r", 9, func(context.Context) error { panic("in the midst of it") }) })
		require.ErrorIs(t, g.Write(t.Context(), "r", 8, nothing), fence.ErrStale)
		require.NoError(t, g.Write(t.Context(), "r", 9, nothing), "the panic has ended the turn")
	})
}

// Also when the context of the write that is under way has ended: it may take its time to notice.
func TestGuard_aLargerTokenWaitsUntilTheWriteReturns(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		ctx, cancel := context.WithCancel(t.Context())
		inside, proceed := make(chan struct{}), make(chan struct{})
		var order []string
		first := testwait.Go(func() error {
			return g.Write(ctx, "r", 1, func(context.Context) error {
				close(inside)
				<-proceed
				order = append(order, "first")
				return nil
			})
		})
		<-inside
		cancel()
		second := testwait.Go(func() error {
			return g.Write(t.Context(), "r", 2, func(context.Context) error { order = append(order, "second"); return nil })
		})
		if d.waiting != "" {
			require.True(t, d.waits(t, db, second))
		}
		close(proceed)
		require.NoError(t, patience.Result(t, first))
		require.NoError(t, patience.Result(t, second))
		assert.Equal(t, []string{"first", "second"}, order)
	})
}

func TestGuard_waitsNoLongerThanItsContext(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		if d.waiting == "" {
			t.Skip("it waits as long as busy_timeout says")
		}
		require.NoError(t, g.Write(t.Context(), "r", 1, func(context.Context) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			second := testwait.Go(func() error { return g.Write(ctx, "r", 2, nothing) })
			require.True(t, d.waits(t, db, second))
			cancel(enough)
			require.ErrorIs(t, patience.Result(t, second), enough)
			return nil
		}))
	})
}

// Databases can be told to end a transaction that does nothing, which is what a turn looks like to
// them.
func TestGuard_losesItsTurnToATimeoutOfIdleTransactions(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		limits := map[sqlfence.Dialect][]string{
			sqlfence.Postgres: {`ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '1s'`},
			sqlfence.MySQL: {
				`SET GLOBAL idle_transaction_timeout = 1`,
				`SET GLOBAL idle_transaction_timeout = 0, GLOBAL idle_write_transaction_timeout = 1`,
			},
		}[d.dialect]
		if limits == nil {
			t.Skip("it has no such limit")
		}
		t.Cleanup(func() {
			for _, reset := range map[sqlfence.Dialect][]string{
				sqlfence.Postgres: {`ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout`},
				sqlfence.MySQL:    {`SET GLOBAL idle_transaction_timeout = 0, GLOBAL idle_write_transaction_timeout = 0`},
			}[d.dialect] {
				_, err := d.open(t, d.plain()).ExecContext(context.Background(), reset)
				assert.NoError(t, err, "other tests have the same server")
			}
		})
		for i, limit := range limits {
			d.exec(t, db, limit)
			db.SetMaxIdleConns(0) // the limit is for new connections
			db.SetMaxIdleConns(2)
			resource := fmt.Sprint("r", i)
			err := g.Write(t.Context(), resource, 1, func(ctx context.Context) error {
				return g.Write(ctx, resource, 2, nothing) // waits until the turn of this one is lost
			})
			require.ErrorContains(t, err, "others may have been let through", limit)
		}
	})
}
