// Package mysql is locker on MySQL and MariaDB: a lock is a row of a table of InnoDB. It registers
// mysql:// and mariadb://.
//
//	client, err := locker.Open(ctx, "mysql://app:s3cret@db1:3306/app")
//
// The URL names one server and a database. Its parameters are table, tls, connect_timeout and
// pool_size. A pool of your own: see New.
//
// Waiters stand in a queue in a table. A release wakes the next goroutine of the same Client at
// once. The first waiter of any other process looks every 50 ms at first, and every 500 ms later
// on. A request takes a connection of the pool only while it runs; holds and waiters take none.
//
// docs/backends/mysql.md in the repository says what a deployment needs to know, and package
// internal/sqllock describes the protocol.
package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/sqllock"
)

const (
	defaultTable   = "locker_locks"
	connectTimeout = 5 * time.Second
	mostConns      = 8 // that ask, by default
	keptConns      = 2 // for renewals and releases
)

func init() {
	driver.Register("mysql", open)
	driver.Register("mariadb", open)
}

func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	table, ok := u.Take("table")
	if ok && table == "" {
		return nil, errors.New("parameter table is empty")
	}
	if err := checkTable(table); err != nil {
		return nil, err
	}
	most := mostConns
	if err := adapter.Number(u, "pool_size", &most); err != nil {
		return nil, err
	}
	connector, err := connectorOf(u)
	if err != nil {
		return nil, err
	}
	if err := u.Unknown(); err != nil {
		return nil, err
	}
	pool := func(most int) *sql.DB {
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(most)
		db.SetMaxIdleConns(most)
		return db
	}
	asking, keeping := pool(most), pool(keptConns)
	asking.SetConnMaxIdleTime(time.Minute)
	return sqllock.New(dialect(table), sqllock.Pools{
		Ask: asking, Read: asking, Keep: keeping, Kept: keptConns,
		Silent: func() {
			for db, most := range map[*sql.DB]int{asking: most, keeping: keptConns} {
				db.SetMaxIdleConns(-1)
				db.SetMaxIdleConns(most)
			}
		},
		Close: func() error {
			_, _ = asking.Close(), keeping.Close() // a connection that had broken already is an error here
			return nil
		},
	}), nil
}

func connectorOf(u *driver.URL) (sqldriver.Connector, error) {
	config, timeout := mysql.NewConfig(), connectTimeout
	if err := adapter.Duration(u, "connect_timeout", &timeout); err != nil {
		return nil, err
	}
	tls, _ := u.Take("tls")
	switch {
	case len(u.Hosts) > 1:
		return nil, errors.New("mysql:// and mariadb:// take one host: a failover happens behind its address")
	case tls != "" && !slices.Contains([]string{"true", "false", "skip-verify", "preferred"}, tls):
		return nil, fmt.Errorf("parameter tls: %q is neither true, false, the default, skip-verify nor preferred", tls)
	case len(u.Path) < 2 || strings.Contains(u.Path[1:], "/"):
		return nil, errors.New("the path is the name of the database, as in mysql://user:password@host:3306/database")
	}
	if u.User != nil {
		config.User = u.User.Username()
		config.Passwd, _ = u.User.Password()
	}
	addr := adapter.Addrs(u, "3306")[0]
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%s is no host and port", addr)
	}
	config.Net, config.Addr, config.DBName, config.TLSConfig, config.Timeout = "tcp", addr, u.Path[1:], tls, timeout
	// What waits for another's transaction ends soon, also if its client has left.
	config.Params = map[string]string{"autocommit": "1", "innodb_lock_wait_timeout": "5"}
	config.Logger = &mysql.NopLogger{} // what fails is an error, or is tried again
	base, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("go-sql-driver/mysql does not accept %v", u) // its error may show the password
	}
	return connector{base, timeout}, nil
}

// connector gives up a connection that is not made in time, as to a server that accepts it and says
// nothing. What database/sql makes in advance has no deadline, and would keep others from being
// made.
type connector struct {
	sqldriver.Connector

	timeout time.Duration
}

// Connect implements Connector of database/sql/driver.
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.Connector.Connect(ctx)
}

// New makes a Client over db, which the caller closes after the Client. See NewDriver.
func New(db *sql.DB, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(db, "")
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// NewDriver makes a Driver over db, which stays the caller's: a pool of
// github.com/go-sql-driver/mysql, with autocommit on. The locks are in table, which may have a
// database before a dot, and has ASCII characters alone; "" is locker_locks. Renewals take
// connections of this pool: if it has a limit (SetMaxOpenConns), and the application uses all of
// them for longer than a third of the TTL, holds are lost.
func NewDriver(db *sql.DB, table string) (driver.Driver, error) {
	if db == nil {
		return nil, adapter.Refuse(errors.New("nil *sql.DB"))
	}
	if err := checkTable(table); err != nil {
		return nil, adapter.Refuse(err)
	}
	d := dialect(table)
	d.Check = func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, check)
		return err
	}
	return sqllock.New(d, sqllock.Pools{
		Ask: db, Read: db, Keep: db,
		Silent: func() {}, // the settings of the pool are the caller's
		Close:  func() error { return nil },
	}), nil
}

//go:embed schema.sql
var schema string

// Schema returns the statements that make the tables, as schema.sql does. The first Lock makes
// them, if the user of the database has the right to do so. Locks need SELECT, INSERT, UPDATE and
// DELETE on them.
func Schema(table string) []string {
	d := dialect(table)
	filled := strings.NewReplacer("`locker_locks`", d.Locks, "`locker_locks_waiters`", d.Waiters).Replace(schema)
	return strings.Split(strings.TrimSuffix(filled, ";\n"), ";\n")
}

func dialect(table string) sqllock.Dialect {
	if table == "" {
		table = defaultTable
	}
	const micros = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	d := sqllock.Dialect{
		Locks: quoted(table), Waiters: quoted(table + "_waiters"),
		Greatest: "GREATEST", Ignore: "IGNORE", Token: "LAST_INSERT_ID", Literals: true,
		// Versions tell by a number or by a word.
		Primary: "CONCAT(@@read_only) IN ('0', 'OFF')", Now: micros, Wall: micros,
		NoTable: func(err error) bool { return isNumber(err, 1146) },
		Again:   func(err error) bool { return isNumber(err, 1020, 1205, 1213) }, // changed meanwhile, lock wait timeout, deadlock
		// no member of the cluster, read only, and the two errors of check
		WrongServer: func(err error) bool { return isNumber(err, 1047, 1290, 1792, 1836, 1231, 1568) },
		Later:       later,
		Poll:        50 * time.Millisecond,
		Settings:    settings,
		Promises: driver.Guarantees{
			driver.Exclusive:      {Level: driver.LevelConditional, Condition: "while the server's clock is sane"},
			driver.Failover:       {Level: driver.LevelConditional, Condition: "if a server that takes over has every commit that was answered. This is so with Galera, Group Replication, or semi-synchronous replication that never falls back to asynchronous. By default replication is asynchronous, and a failover can lose the lock"},
			driver.Fencing:        {Level: driver.LevelYes},
			driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while nobody sets the server's clock back. If the server that takes over lacks the last commits, its clock must not be behind that of the old server"},
			driver.Ordered:        {Level: driver.LevelConditional, Condition: "while the server's clock is sane, and no waiter is cut off for more than 5 s (or its TTL if that is shorter)"},
			driver.Woken:          {Level: driver.LevelNo, Condition: "waiters of other processes look every 50 to 500 ms"},
		},
	}
	d.Prepare = func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, d.Fill("SELECT 1 FROM {locks}, {waiters} LIMIT 0")) // who may not make tables may be right to try
		if !d.NoTable(err) {
			return err
		}
		for _, statement := range Schema(table) {
			if _, err := c.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	return d
}

// checkTable refuses names that are not the same table in all character sets.
func checkTable(table string) error {
	if strings.ContainsFunc(table, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return fmt.Errorf("the table %q: its name has to be of ASCII characters, which every character set has", table)
	}
	return nil
}

// check sets the isolation level of the next transaction to that of the session. Inside a
// transaction it is refused. MySQL and MariaDB each read the comments that are for them.
const (
	check = "SET " + level + " = IF(@@autocommit, " + level + ", 'autocommit is off')"
	level = "/*!50720 @@transaction_isolation *//*M! @@tx_isolation */"
)

func quoted(table string) string {
	parts := strings.SplitN(table, ".", 2)
	for i, p := range parts {
		parts[i] = "`" + strings.ReplaceAll(p, "`", "``") + "`"
	}
	return strings.Join(parts, ".")
}

func isNumber(err error, numbers ...uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, e.Number)
}

// later reports whether err is that of a connection that broke, also while it was made, or of a
// server that serves nobody for a while: it shuts down, has ended the connection, or all that there
// may be are in use.
func later(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || isNumber(err, 1053, 1927, 1040, 1203) ||
		err.Error() == "bad connection" // which has no name
}

// settings looks at what lets a promise be broken.
func settings(ctx context.Context, c *sql.Conn) (warnings []string, err error) {
	rows, err := c.QueryContext(ctx, `SHOW VARIABLES WHERE variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog',
		'wsrep_on', 'group_replication_group_name', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	is := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		is[name] = value
	}
	warn := func(wrong bool, text string) {
		if wrong {
			warnings = append(warnings, text)
		}
	}
	warn(is["innodb_flush_log_at_trx_commit"] != "1",
		"innodb_flush_log_at_trx_commit="+is["innodb_flush_log_at_trx_commit"]+": a crash can lose a hold that was granted; set it to 1")
	binlog := is["log_bin"] == "ON" && is["wsrep_on"] != "ON" && is["group_replication_group_name"] == ""
	warn(binlog && is["sync_binlog"] != "1", "sync_binlog="+is["sync_binlog"]+": after a crash a replica may not have a hold that was granted; set it to 1")
	warn(binlog && is["rpl_semi_sync_master_enabled"] != "ON" && is["rpl_semi_sync_source_enabled"] != "ON",
		"replication is asynchronous, if there is any: a replica that takes over may not have a hold that was granted; enable semi-synchronous replication")
	return warnings, rows.Err()
}
