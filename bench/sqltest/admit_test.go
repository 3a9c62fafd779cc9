package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testwait"
)

func (d *database) admit(ctx context.Context, l level, db *sql.DB, resource string, token uint64) error {
	tx, err := l.tryBegin(ctx, db)
	if err != nil {
		return err
	}
	return finish(tx, d.table().Admit(ctx, tx, resource, token))
}

// Two transactions at once, of a resource that nobody has seen and of one that is known; in every order, and whether the first commits or not.
func TestAdmit_takesTurns(t *testing.T) {
	tests := map[string]turns{
		"a newer one waits for an older one":                {first: 1, second: 2, commits: true},
		"an older one waits, and is refused":                {first: 2, second: 1, commits: true, stale: true},
		"the raise of one that is rolled back is undone":    {first: 2, second: 1},
		"one that is rolled back leaves nothing to a newer": {first: 1, second: 2},
		"two of one holder":                                 {first: 1, second: 1, commits: true},
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
	stale         bool // the second
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
	if turns.stale {
		require.ErrorIs(t, err, fence.ErrStale)
	} else {
		require.NoError(t, err)
	}
}

func TestAdmit_tellsNamesApartByteByByte(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		names := []string{
			"a", "A", "a ", " a", "ä", "Ä", "a\u0308", "a\t", "a/b", `a"b`, "a'b", "ß", "ss", "%", "?", "$1", "\U0001F512",
			strings.Repeat("x", sqlfence.MaxResource), strings.Repeat("x", sqlfence.MaxResource-1),
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
			err := sqlfence.Guard{DB: db, Table: d.table()}.Write(t.Context(), "r", 7, func(context.Context) error {
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

// A transaction that was begun by hand, as SQLite's BEGIN IMMEDIATE is.
func TestAdmit_onAConnection(t *testing.T) {
	run(t, func(t *testing.T, d *database) {
		db := d.fresh(t, d.plain())
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		begin := "BEGIN"
		if d.dialect == sqlfence.SQLite {
			begin = "BEGIN IMMEDIATE"
		}
		d.exec(t, conn, begin)
		require.NoError(t, d.table().Admit(t.Context(), conn, "r", 2))
		d.exec(t, conn, "ROLLBACK")
		require.NoError(t, d.admit(t.Context(), d.plain(), db, "r", 1))
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
