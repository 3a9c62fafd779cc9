package sqlfence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-locker/locker/fence"
)

const maxResource = 1024 // bytes

// Table is a guard table: a row for each resource, with the largest token that it has seen. Its
// name is used unquoted. The name of a resource has 1 to 1024 bytes.
//
// Do not delete a row while a holder with an earlier token may still be at work: without its row,
// the resource accepts any token.
type Table struct {
	Dialect Dialect
	Name    string // or schema.name; default "fencing_tokens"
}

func (t Table) name() string { return cmp.Or(t.Name, "fencing_tokens") }

func (t Table) check() error {
	return cmp.Or(t.Dialect.check(), checkName(tableName, "table", t.name()))
}

// Create creates the table unless it is there, by the statement of [Table.DDL]. Several programs
// may do so at once. In MySQL that commits a transaction under way.
func (t Table) Create(ctx context.Context, db Querier) error {
	ddl, err := t.DDL()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, ddl); err != nil {
		return fmt.Errorf("sqlfence: creating table %s: %w", t.name(), err)
	}
	return nil
}

// DDL returns the statement that creates the table unless it is there, for programs that create
// their tables with a tool.
func (t Table) DDL() (string, error) {
	if err := t.check(); err != nil {
		return "", err
	}
	// Names are told apart byte by byte, also where MySQL would take A for a.
	switch t.Dialect {
	case MySQL:
		return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (resource VARBINARY(%d) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB",
			t.name(), maxResource), nil
	case SQLite:
		return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)", t.name()), nil
	default:
		// Of two such statements at once one may fail in PostgreSQL, IF NOT EXISTS or not; so they take turns.
		return fmt.Sprintf(`DO $$ BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('sqlfence %[1]s'));
	CREATE TABLE IF NOT EXISTS %[1]s (resource TEXT COLLATE "C" NOT NULL PRIMARY KEY, token BIGINT NOT NULL);
END $$`, t.name()), nil
	}
}

// Admit lets the transaction tx go on if token is at least as large as every token that the table
// has seen for resource, and not 0; else it returns a [*fence.StaleError]. Until tx ends, no other
// transaction gets past its own Admit for the resource: it waits, and then sees what tx has left.
//
// Call Admit before everything else in the transaction. Above all, call it before reads: a snapshot
// that is taken before Admit may miss what other transactions wrote while Admit waited. After any
// error roll back. In MySQL a statement like CREATE TABLE commits, and so lets others past their
// Admit.
//
// If the transaction is rolled back, the token counts as not seen. This is right for the database,
// because nothing was written under the token there. For what is written elsewhere use [Table.Guard].
// Do not set a savepoint before Admit. After a rollback to it, the token counts as not seen, but
// the transaction can still write and commit. Then a smaller token is accepted later.
//
// If the row's token is NULL, or cannot be a token (as far as a comparison in SQL shows it), the
// error is [fence.ErrUnknown].
//
// If two transactions conflict, the database may refuse one with an error of its own. Then nothing
// was written, and the transaction may be tried again, from its beginning and with the same token:
// see the package's table of isolation levels.
//
// tx is a *sql.Tx, or a *sql.Conn on which a transaction was begun, or a wrapper of one of these.
// Admit refuses a *sql.DB, and types that embed one, as libraries over database/sql have: it
// refuses whatever has the method Stats. It cannot see whether a connection is in a transaction;
// outside of a transaction it protects nothing.
func (t Table) Admit(ctx context.Context, tx Querier, resource string, token uint64) error {
	if err := t.checkAdmit(tx, resource, token); err != nil {
		return err
	}
	var newest kept
	var err error
	if t.Dialect == MySQL {
		newest, err = t.raiseMySQL(ctx, tx, resource, token)
	} else {
		newest, err = t.raise(ctx, tx, resource, token)
	}
	if err != nil {
		return fmt.Errorf("sqlfence: %q: admitting token %d: %w", resource, token, err)
	}
	return fence.Check(resource, token, uint64(newest))
}

func (t Table) checkAdmit(tx Querier, resource string, token uint64) error {
	if err := fence.Check(resource, token, 0); err != nil {
		return err
	}
	if err := cmp.Or(t.check(), checkRange(resource, token)); err != nil {
		return err
	}
	if _, pool := tx.(interface{ Stats() sql.DBStats }); pool { // which neither a transaction nor a connection has
		return fmt.Errorf("sqlfence: %q: Admit got a %T: on its own, outside the transaction of the writes, it protects nothing", resource, tx)
	}
	if len(resource) == 0 || len(resource) > maxResource {
		return fmt.Errorf("sqlfence: a resource's name has 1 to %d bytes, not %d", maxResource, len(resource))
	}
	return nil
}

// raise is one statement, which inserts the row, or waits for the transaction that has it, and then writes it or not. It writes
// an equal token too, for that locks the row.
func (t Table) raise(ctx context.Context, tx Querier, resource string, token uint64) (newest kept, err error) {
	first := t.Dialect.placeholder(1)
	result, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s AS seen (resource, token) VALUES (%s, %s) "+
		"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE seen.token <= excluded.token",
		t.name(), first, t.Dialect.placeholder(2)), resource, token)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return kept(token), err
	}
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM %s WHERE resource = %s", t.name(), first), resource).Scan(&newest)
	if err == nil && uint64(newest) <= token {
		err = errors.New("the row was not written, and the database does not tell why")
	}
	return newest, err
}

// raiseMySQL is two statements, for MySQL's upsert takes no condition, and its count of rows does not tell an equal token from
// a larger one. The first locks the row, also where it changes nothing.
func (t Table) raiseMySQL(ctx context.Context, tx Querier, resource string, token uint64) (newest kept, err error) {
	_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (resource, token) VALUES (?, ?) "+
		"ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)", t.name()), resource, token, token)
	if err != nil {
		return 0, err
	}
	// Only a locking read is sure to see the row as it is, and not as in the transaction's snapshot.
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM %s WHERE resource = ? FOR UPDATE", t.name()), resource).Scan(&newest)
	return newest, err
}
