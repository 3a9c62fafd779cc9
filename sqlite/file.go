package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"
)

// errNoFile is what those who only read hear of a file that nobody has made.
var errNoFile = errors.New("there is no file yet")

// connector makes connections to a file.
type connector struct {
	driver.Connector

	path    string
	dialect *dialect // nil: it reads
}

// poolOf makes a pool of so many connections at most. It opens no file.
func poolOf(path string, most int, synchronous string, d *dialect) (*sql.DB, error) {
	query := url.Values{} // without a busy_timeout: the Driver tries again, after pauses that do not get longer
	if d == nil {
		query.Set("mode", "rw") // and no file is made
	} else {
		query.Add("_pragma", "journal_mode(WAL)")
	}
	if synchronous != "" {
		query.Add("_pragma", "synchronous("+synchronous+")")
	}
	name := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	base, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	path = filepath.FromSlash(path)
	if runtime.GOOS == "windows" {
		path = path[1:] // \C:\dir\file
	}
	db := sql.OpenDB(&connector{base, path, d})
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// Connect opens the file, and looks before and after that which one it is.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if _, err := os.Stat(c.path); c.dialect == nil && errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFile
	}
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// The last connection to close would delete the files beside it by their names, and so perhaps
	// those of a file that has taken its place.
	all := made.(conn)
	_, err = all.FileControlPersistWAL("main", 1)
	if err == nil && c.dialect != nil && !isPrepared(ctx, all, c.dialect) {
		_, err = all.ExecContext(ctx, c.dialect.schema(), nil)
	}
	file, failed := os.Stat(c.path)
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return &watched{all, c.path, file}, nil
}

// isPrepared reports whether the tables are there, and of this start of the machine: then nothing
// need be written.
func isPrepared(ctx context.Context, c conn, d *dialect) bool {
	rows, err := c.QueryContext(ctx, d.prepared(), nil)
	if err != nil {
		return false
	}
	defer func() { _ = rows.Close() }()
	return rows.Next(make([]driver.Value, 1)) == nil
}

// conn is what a connection of modernc.org/sqlite has.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.FileControl
}

// watched is a connection that is not used again when its file is not the one of that name any
// more: a program that still has the old file would share no lock with those that open the new one.
type watched struct {
	conn

	path string
	file os.FileInfo
}

// ResetSession implements driver.SessionResetter.
func (w *watched) ResetSession(ctx context.Context) error {
	if there, err := os.Stat(w.path); err != nil || !os.SameFile(there, w.file) {
		return driver.ErrBadConn
	}
	return w.conn.ResetSession(ctx)
}
