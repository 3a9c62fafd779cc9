package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/go-locker/locker/fence/sqlfence"
)

// account is what the lock protects: a row with a balance, and with the largest token that has written it.
type account struct {
	db    *sql.DB
	table sqlfence.Column
}

// openAccount opens a database: postgres://…, mysql://…, or the name of a file, which is SQLite's. A table belongs to one run.
func openAccount(database, table string) (*account, error) {
	db, dialect, err := openDB(database)
	if err != nil {
		return nil, err
	}
	return &account{db: db, table: sqlfence.Column{Dialect: dialect, Table: table, Key: "id"}}, nil
}

func openDB(database string) (*sql.DB, sqlfence.Dialect, error) {
	scheme, _, found := strings.Cut(database, "://")
	switch {
	case !found:
		// Two processes write it: one that finds it busy waits.
		file := url.URL{Scheme: "file", OmitHost: true, Path: database, RawQuery: "_pragma=busy_timeout(10000)"}
		db, err := sql.Open("sqlite", file.String())
		return db, sqlfence.SQLite, err
	case scheme == "postgres" || scheme == "postgresql":
		db, err := sql.Open("pgx", database)
		return db, sqlfence.Postgres, err
	case scheme == "mysql":
		db, err := openMySQL(database)
		return db, sqlfence.MySQL, err
	default:
		return nil, 0, fmt.Errorf("database %s://: want postgres://, mysql://, or a file, which is SQLite's", scheme)
	}
}

// openMySQL takes mysql://user:password@host:3306/name?parameter=value, with the parameters of its driver.
func openMySQL(database string) (*sql.DB, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, errors.New("database mysql://: not a URL") // what url says has the password in it
	}
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	dsn := config.FormatDSN()
	if strings.Contains(dsn, "?") {
		dsn += "&" + u.RawQuery
	} else {
		dsn += "?" + u.RawQuery
	}
	return sql.Open("mysql", dsn)
}

// newTable is a name that no other run has.
func newTable() string { return "fencedwrite_" + strings.ToLower(rand.Text()[:8]) }

func (a *account) create(ctx context.Context) error {
	_, err := a.db.ExecContext(ctx, "CREATE TABLE "+a.table.Table+
		" (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, token BIGINT NOT NULL DEFAULT 0)")
	return err
}

func (a *account) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := a.db.ExecContext(ctx, "DROP TABLE "+a.table.Table)
	return err
}

func (a *account) insert(ctx context.Context, id, balance int) error {
	_, err := a.db.ExecContext(ctx, a.sql("INSERT INTO %s (id, balance) VALUES (?, ?)"), id, balance)
	return err
}

func (a *account) read(ctx context.Context, id int) (balance int, err error) {
	err = a.db.QueryRowContext(ctx, a.sql("SELECT balance FROM %s WHERE id = ?"), id).Scan(&balance)
	return balance, err
}

// write is how it is mostly done: the token stays at home.
func (a *account) write(ctx context.Context, id, balance int) error {
	_, err := a.db.ExecContext(ctx, a.sql("UPDATE %s SET balance = ? WHERE id = ?"), balance, id)
	return err
}

// writeFenced is how it should be: the statement that writes has the token as a condition, and keeps it. A stale one is an
// error that matches fence.ErrStale.
func (a *account) writeFenced(ctx context.Context, id, balance int, token uint64) error {
	return a.table.Exec(ctx, a.db, id, token,
		a.sql("UPDATE %s SET balance = ?, token = ? WHERE id = ? AND token <= ?"), balance, token, id, token)
}

// sql puts the table into a statement, and PostgreSQL's placeholders, which have numbers.
func (a *account) sql(statement string) string {
	statement = fmt.Sprintf(statement, a.table.Table)
	if a.table.Dialect != sqlfence.Postgres {
		return statement
	}
	var s strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			fmt.Fprintf(&s, "$%d", i)
		}
		s.WriteString(part)
	}
	return s.String()
}
