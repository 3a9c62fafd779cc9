package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
)

// asked counts what reaches the database, which refuses it.
type asked struct{ statements []string }

var errAsked = errors.New("the database was asked")

func (a *asked) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	a.statements = append(a.statements, query)
	return nil, errAsked
}

func (a *asked) QueryRowContext(context.Context, string, ...any) *sql.Row {
	panic("a row was asked for before anything was written")
}

const update = `UPDATE t SET token = ? WHERE id = ? AND token <= ?`

func TestExec_refusesBeforeAnythingIsSent(t *testing.T) {
	const tooLarge = math.MaxInt64 + 1
	for name, test := range map[string]struct {
		token uint64
		query string
		args  []any
		want  string
	}{
		"token 0":           {0, update, []any{0, 1, 0}, "the lock is not held"},
		"2^63":              {tooLarge, update, []any{uint64(tooLarge), 1, uint64(tooLarge)}, "does not fit into BIGINT"},
		"no token":          {7, update, []any{8, 1, 8}, "none of the statement's arguments is the token 7"},
		"no arguments":      {7, update, nil, "none of the statement's arguments is the token 7"},
		"NULL":              {7, update, []any{nil, sql.NullInt64{}, (*sql.NullInt64)(nil)}, "none of the statement's arguments is the token 7"},
		"a negative number": {7, update, []any{-7}, "none of the statement's arguments is the token 7"},
		"what is no number": {7, update, []any{"7", []byte("7"), 7.5, struct{}{}}, "none of the statement's arguments is the token 7"},
		"MySQL's upsert":    {7, "INSERT INTO t VALUES (?) On\n Duplicate  Key UPDATE x = ?", []any{7}, "ON DUPLICATE KEY takes no condition"},
	} {
		t.Run(name, func(t *testing.T) {
			var db asked
			err := sqlfence.Exec(t.Context(), &db, "t/1", test.token, test.query, test.args...)
			require.ErrorContains(t, err, test.want)
			column := sqlfence.Column{Dialect: sqlfence.MySQL, Table: "t", Key: "id"}
			err = column.Exec(t.Context(), &db, 1, test.token, test.query, test.args...)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.token == 0, errors.Is(err, fence.ErrStale), "token 0 alone is stale")
			assert.Empty(t, db.statements)
		})
	}
}

func TestExec_findsTheTokenAmongTheArguments(t *testing.T) {
	type token uint64
	number := 7
	for name, arg := range map[string]any{
		"uint64":      uint64(7),
		"int":         7,
		"int64":       int64(7),
		"own type":    token(7),
		"pointer":     &number,
		"named":       sql.Named("token", uint64(7)),
		"Valuer":      sql.NullInt64{Int64: 7, Valid: true},
		"named thing": sql.Named("token", sql.NullInt64{Int64: 7, Valid: true}),
	} {
		t.Run(name, func(t *testing.T) {
			var db asked
			err := sqlfence.Exec(t.Context(), &db, "t/1", 7, update, "x", arg)
			require.ErrorIs(t, err, errAsked)
			assert.Equal(t, []string{update}, db.statements)
		})
	}
}

func TestNames_areRefusedBeforeAnythingIsSent(t *testing.T) {
	for _, name := range []string{
		"a b", "a;b", `a"b`, "a`b", "a'b", "1a", "a.b.c", ".a", "a.", "ä", "a\n", strings.Repeat("a", 64), "a-b",
	} {
		var db asked
		require.Error(t, sqlfence.Table{Dialect: sqlfence.SQLite, Name: name}.Create(t.Context(), &db), "table %q", name)
		require.Error(t, sqlfence.Table{Dialect: sqlfence.SQLite, Name: name}.Admit(t.Context(), &db, "r", 1), "table %q", name)
		for _, column := range []sqlfence.Column{
			{Dialect: sqlfence.SQLite, Table: name, Key: "id"},
			{Dialect: sqlfence.SQLite, Table: "t", Key: name},
			{Dialect: sqlfence.SQLite, Table: "t", Key: "id", Token: name},
			{Dialect: sqlfence.SQLite, Table: "t"},
		} {
			require.Error(t, column.Exec(t.Context(), &db, 1, 7, update, 7), "%+v", column)
		}
		assert.Empty(t, db.statements)
	}
}

func TestDialect_hasToBeSet(t *testing.T) {
	var db asked
	for _, dialect := range []sqlfence.Dialect{"", "SQL", "mysql"} {
		require.ErrorContains(t, sqlfence.Table{Dialect: dialect}.Create(t.Context(), &db), "is no dialect")
		require.ErrorContains(t, sqlfence.Table{Dialect: dialect}.Admit(t.Context(), &db, "r", 1), "is no dialect")
		require.ErrorContains(t, sqlfence.Column{Dialect: dialect, Table: "t", Key: "id"}.Exec(t.Context(), &db, 1, 7, update, 7), "is no dialect")
	}
	assert.Empty(t, db.statements)
}

func TestAdmit_refusesBeforeAnythingIsSent(t *testing.T) {
	table := sqlfence.Table{Dialect: sqlfence.Postgres}
	var db asked
	require.ErrorIs(t, table.Admit(t.Context(), &db, "r", 0), fence.ErrStale)
	require.ErrorContains(t, table.Admit(t.Context(), &db, "r", math.MaxInt64+1), "does not fit into BIGINT")
	require.ErrorContains(t, table.Admit(t.Context(), &db, "", 1), "1 to 1024 bytes")
	require.ErrorContains(t, table.Admit(t.Context(), &db, strings.Repeat("r", 1025), 1), "1 to 1024 bytes")
	require.ErrorContains(t, table.Admit(t.Context(), new(sql.DB), "r", 1), "got a *sql.DB")
	type pool struct{ *sql.DB } // as that of sqlx
	require.ErrorContains(t, table.Admit(t.Context(), pool{new(sql.DB)}, "r", 1), "got a sqlfence_test.pool")
	assert.Empty(t, db.statements)
	require.ErrorIs(t, table.Admit(t.Context(), &db, "r", 1), errAsked, "the least that is let through")
	require.ErrorIs(t, table.Admit(t.Context(), &db, strings.Repeat("r", 1024), math.MaxInt64), errAsked, "the most")
}
