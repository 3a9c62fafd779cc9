package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What becomes of a write.
const (
	lost    = "LOST"    // the stale write has overwritten the newer one
	refused = "refused" // ErrStale
	retry   = "retry"   // an error of the database, by which nothing was written
	waits   = "waits"   // the newer write waited for the older one, and came after it
)

// A way to write under a token, in a transaction.
type way struct {
	check func(ctx context.Context, d *database, tx *sql.Tx, token uint64) error // before a pause
	write func(ctx context.Context, d *database, tx *sql.Tx, state string, token uint64) error
}

var (
	// In the program, of a row that was read a moment ago.
	byNaiveCheck = way{checkInProgram, writeAnyhow}

	byExec = way{read, func(ctx context.Context, d *database, tx *sql.Tx, state string, token uint64) error {
		query, args := d.update(state, token)
		return d.column().Exec(ctx, tx, 1, token, query, args...)
	}}
	byAdmit = way{read, func(ctx context.Context, d *database, tx *sql.Tx, state string, token uint64) error {
		if err := d.table().Admit(ctx, tx, "accounts/1", token); err != nil {
			return err
		}
		return writeAnyhow(ctx, d, tx, state, token)
	}}
)

func checkInProgram(ctx context.Context, _ *database, tx *sql.Tx, token uint64) error {
	var newest uint64
	if err := tx.QueryRowContext(ctx, `SELECT token FROM accounts WHERE id = 1`).Scan(&newest); err != nil {
		return err
	}
	return fence.Check("accounts/1", token, newest)
}

// read is what a transaction may well begin with.
func read(ctx context.Context, _ *database, tx *sql.Tx, _ uint64) error {
	var state string
	return tx.QueryRowContext(ctx, `SELECT state FROM accounts WHERE id = 1`).Scan(&state)
}

func writeAnyhow(ctx context.Context, d *database, tx *sql.Tx, state string, token uint64) error {
	_, err := tx.ExecContext(ctx, d.sql(`UPDATE accounts SET state = ?, token = ? WHERE id = 1`), state, token)
	return err
}

// The table in the documentation of sqlfence is what is seen here.
func TestLevels(t *testing.T) {
	documentation, err := os.ReadFile("../../fence/sqlfence/sqlfence.go")
	require.NoError(t, err)
	documented := strings.Split(string(documentation), "\n")
	runLevels(t, func(t *testing.T, d *database, l level, db *sql.DB) {
		var codes []string
		see := func(timeline func(*testing.T, *database, level, *sql.DB, way) (seen, code string), by way) string {
			d.exec(t, db, `DELETE FROM fencing_tokens`)
			d.exec(t, db, `DELETE FROM accounts`)
			d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
			seen, code := timeline(t, d, l, db, by)
			if code != "" && !slices.Contains(codes, code) {
				codes = append(codes, code)
			}
			return seen
		}
		row := fmt.Sprintf("//	%-36s %-8s %-8s %-8s %-8s %-8s %s", l.name,
			see(overtaken, byNaiveCheck), see(overtaken, byExec), see(overtaken, byAdmit),
			see(atOnce, byExec), see(atOnce, byAdmit), strings.Join(codes, ", "))
		row = strings.TrimRight(row, " ")
		assert.True(t, slices.Contains(documented, row), "what was seen is not what is documented:\n%s", row)
	})
}

// overtaken: the transaction of token 1 has read the row when its process is paused. Then token 2 writes. Then 1 does.
func overtaken(t *testing.T, d *database, l level, db *sql.DB, by way) (seen, code string) {
	old := l.begin(t, db)
	require.NoError(t, by.check(t.Context(), d, old, 1))
	newer := func() error { return inTransaction(t.Context(), d, l, db, by, "newer", 2) }

	done := testwait.Go(newer)
	held := d.waits(t, db, done) // or was told to come again
	var newerErr error
	if !held {
		newerErr = <-done
		held = newerErr != nil
	}
	err := finish(old, by.write(t.Context(), d, old, "older", 1))
	if held && newerErr == nil {
		newerErr = patience.Result(t, done)
	}
	if newerErr != nil {
		code = d.mustBeCode(t, newerErr)
		require.NoError(t, newer(), "when it is tried again")
	}
	switch {
	case err == nil && held:
		assertNewest(t, db)
		return waits, code
	case err == nil:
		state, _ := account(t, db)
		require.Equal(t, "older", state)
		return lost, ""
	}
	assertNewest(t, db)
	if errors.Is(err, fence.ErrStale) {
		return refused, ""
	}
	code = d.mustBeCode(t, err)
	err = inTransaction(t.Context(), d, l, db, by, "older", 1)
	require.ErrorIs(t, err, fence.ErrStale, "when it is tried again")
	assertNewest(t, db)
	return retry, code
}

// atOnce: the transaction of token 1 has written, not read, when its process is paused. Token 2 begins. Then 1 commits.
func atOnce(t *testing.T, d *database, l level, db *sql.DB, by way) (seen, code string) {
	old := l.begin(t, db)
	require.NoError(t, by.write(t.Context(), d, old, "older", 1))
	by.check = func(context.Context, *database, *sql.Tx, uint64) error { return nil }
	newer := func() error { return inTransaction(t.Context(), d, l, db, by, "newer", 2) }
	done := testwait.Go(newer)
	d.waits(t, db, done)
	require.NoError(t, old.Commit())
	seen = waits
	if err := patience.Result(t, done); err != nil {
		seen, code = retry, d.mustBeCode(t, err)
		require.NoError(t, newer(), "when it is tried again")
	}
	assertNewest(t, db)
	require.ErrorIs(t, inTransaction(t.Context(), d, l, db, by, "older", 1), fence.ErrStale)
	assertNewest(t, db)
	return seen, code
}

func inTransaction(ctx context.Context, d *database, l level, db *sql.DB, by way, state string, token uint64) error {
	tx, err := l.tryBegin(ctx, db)
	if err != nil {
		return err
	}
	if err := by.check(ctx, d, tx, token); err != nil {
		return finish(tx, err)
	}
	return finish(tx, by.write(ctx, d, tx, state, token))
}

// finish commits unless there is an error.
func finish(tx *sql.Tx, err error) error {
	if err == nil {
		err = tx.Commit()
	}
	_ = tx.Rollback()
	return err
}

func (d *database) mustBeCode(t *testing.T, err error) string {
	t.Helper()
	require.True(t, d.comeAgain(err), "want an error of the database that says to come again: %v", err)
	return d.code(err)
}

func assertNewest(t *testing.T, db *sql.DB) {
	t.Helper()
	state, token := account(t, db)
	assert.Equal(t, "newer", state)
	assert.Equal(t, uint64(2), token)
}

var sqlBlock = regexp.MustCompile("(?ms)^```sql\n(.*?;)\n```$")

// The SQL of docs/fencing.md does what the page says of it.
func TestPage_sql(t *testing.T) {
	text, err := os.ReadFile("../../docs/fencing.md")
	require.NoError(t, err)
	var statements []string
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		statements = append(statements, block[1])
	}
	require.Len(t, statements, 3, "a column, an update and an insert")
	const token = "1795555380981738"
	run(t, func(t *testing.T, d *database) {
		db := d.open(t, d.plain())
		rows := func(statement string) int64 {
			t.Helper()
			result, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
			n, err := result.RowsAffected()
			require.NoError(t, err)
			return n
		}
		rows(`DROP TABLE IF EXISTS orders`)
		rows(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(100))`)
		rows(`INSERT INTO orders VALUES (42, 'new')`)
		rows(statements[0])
		writes := statements[1:]
		if d.dialect == sqlfence.MySQL {
			writes = statements[1:2] // for the other the page has another way
		}
		for _, write := range writes {
			require.Contains(t, write, token)
			rows(`UPDATE orders SET token = 0, state = 'new'`)
			assert.EqualValues(t, 1, rows(write), "the first write with a token")
			later := strings.ReplaceAll(write, token, "1795555380981739")
			assert.EqualValues(t, 1, rows(later), "a later holder's")
			assert.EqualValues(t, 0, rows(write), "a stale one")
			assert.EqualValues(t, 1, rows(`DELETE FROM orders WHERE token = 1795555380981739 AND state = 'paid'`), "the later token is kept")
			if strings.HasPrefix(write, "INSERT") {
				assert.EqualValues(t, 1, rows(write), "a row that was missing")
			}
			rows(`DELETE FROM orders`)
			rows(`INSERT INTO orders (id, state) VALUES (42, 'new')`)
		}
	})
}
