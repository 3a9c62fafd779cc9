package golangmigrate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/go-locker/locker/fence"
)

// Dialect says which SQL a database understands.
type Dialect string

// The databases whose transactions undo any migration.
const (
	Postgres Dialect = "PostgreSQL"
	SQLite   Dialect = "SQLite"
)

// NoTransaction is the first line of a migration that cannot run in a transaction.
const NoTransaction = "-- locker: no transaction"

// fencer checks tokens in SQL alone, which the inner driver runs: a Driver of migrate has no
// connection to give. Its methods may be called on nil: then nothing is checked.
type fencer struct {
	create string
	table  string // in which inner keeps the version
}

func newFencer(dialect Dialect, table string) (*fencer, error) {
	f := &fencer{table: table}
	switch { // the tables of package sqlfence
	case table == "":
		return nil, errors.New("golangmigrate: the table of versions has no name: migrate's default is schema_migrations")
	case dialect == SQLite:
		f.create = `CREATE TABLE IF NOT EXISTS fencing_tokens (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)`
	case dialect == Postgres: // of two such statements at once one may fail there, IF NOT EXISTS or not
		f.create = `DO $$ BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('sqlfence fencing_tokens'));
	CREATE TABLE IF NOT EXISTS fencing_tokens (resource TEXT COLLATE "C" NOT NULL PRIMARY KEY, token BIGINT NOT NULL);
END $$`
	default:
		return nil, fmt.Errorf("golangmigrate: no fence for the dialect %q: want Postgres or SQLite, whose transactions undo any migration", dialect)
	}
	return f, nil
}

// check returns statements that fail if the database has seen a larger token than token. Until
// their transaction ends, they keep others from checking. They are one line, so that the lines that
// errors name stay those of the migration.
func (f *fencer) check(token uint64) string {
	resource := "'" + strings.ReplaceAll(f.table, "'", "''") + "'"
	return fmt.Sprintf("INSERT INTO fencing_tokens (resource, token) VALUES (%[1]s, 0) ON CONFLICT (resource) DO NOTHING; "+
		"UPDATE fencing_tokens SET token = CASE WHEN token <= %[2]d THEN %[2]d END WHERE resource = %[1]s; ", resource, token) // NULL is refused
}

// begin has the database refuse the tokens of earlier holders, before migrate reads the version. If
// that is dirty, begin returns it, and refuses nobody: migrate will go no further, and an earlier
// holder may be about to finish its migration.
func (f *fencer) begin(inner database.Driver, token uint64) (dirty *int, err error) {
	if f == nil {
		return nil, nil
	}
	if err := inner.Run(strings.NewReader(f.create)); err != nil {
		return nil, fmt.Errorf("golangmigrate: create the table fencing_tokens: %w", err)
	}
	version, isDirty, err := inner.Version()
	switch {
	case err != nil:
		return nil, fmt.Errorf("golangmigrate: begin: %w", err)
	case isDirty:
		return &version, nil
	}
	return nil, f.refused("begin", token, inner.Run(strings.NewReader(f.check(token))))
}

// run runs a migration in one transaction with the check: several statements in one request are one
// in PostgreSQL, and the driver for SQLite makes one of them.
func (f *fencer) run(inner database.Driver, token uint64, migration io.Reader) error {
	if f == nil {
		return inner.Run(migration)
	}
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(string(text), "\n"); strings.TrimSpace(first) != NoTransaction {
		return f.refused("run a migration", token, inner.Run(strings.NewReader(f.check(token)+string(text))))
	}
	if err := f.refused("run a migration", token, inner.Run(strings.NewReader(f.check(token)))); err != nil {
		return err
	}
	return inner.Run(strings.NewReader(string(text)))
}

// setVersion does what the drivers for PostgreSQL and SQLite do, in one transaction with the check.
func (f *fencer) setVersion(inner database.Driver, token uint64, version int, dirty bool) error {
	if f == nil {
		return inner.SetVersion(version, dirty)
	}
	set := "DELETE FROM " + f.table + ";"
	if version >= 0 || dirty { // also of a first migration that fails on its way down
		set += fmt.Sprintf(" INSERT INTO %s (version, dirty) VALUES (%d, %t);", f.table, version, dirty)
	}
	return f.refused(fmt.Sprintf("set version %d", version), token, inner.Run(strings.NewReader(f.check(token)+set)))
}

// refused makes err match fence.ErrStale if the check has failed: the only NULL that the database
// can refuse in the table of tokens is the check's.
func (f *fencer) refused(what string, token uint64, err error) error {
	if err == nil {
		return nil
	}
	cause := err // of which the message has the statement, too
	if e := new(database.Error); errors.As(err, e) || errors.As(err, &e) {
		cause = e.OrigErr
	}
	text := strings.ToLower(cause.Error())
	if strings.Contains(text, "fencing_tokens") && strings.Contains(text, "null") {
		err = &fence.StaleError{Resource: f.table, Token: token}
	}
	return fmt.Errorf("golangmigrate: %s: %w", what, err)
}
