package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
)

// errNoFile is what those who only read hear of a file that nobody has made.
var errNoFile = errors.New("there is no file yet")

// connector makes connections to a file.
type connector struct {
	driver.Connector

	path   string
	writes bool // and makes the file
}

// poolOf makes a pool of so many connections at most. It opens no file.
func poolOf(path string, most int, synchronous string, writes bool) (*sql.DB, error) {
	query := url.Values{} // without a busy_timeout: the Driver tries again, after pauses that do not get longer
	if writes {
		query.Add("_pragma", "journal_mode(WAL)")
	} else {
		query.Set("mode", "rw") // and no file is made
	}
	if synchronous != "" {
		query.Add("_pragma", "synchronous("+synchronous+")")
	}
	name := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	base, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(&connector{base, fileName(path), writes})
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// fileName returns the name of the file that a URL has the path of.
func fileName(path string) string {
	path = filepath.FromSlash(path)
	if runtime.GOOS == "windows" {
		path = path[1:] // \C:\dir\file
	}
	return path
}

// Two libraries in one process that have a file open destroy it. The kernel's locks on files are a
// process's: each library is granted what the other has locked, and undoes all locks of the other
// when it closes a descriptor. Each has one descriptor of the file -shm, whatever its connections.

// secondLibrary returns by which name another library for SQLite is registered, or "".
var secondLibrary = sync.OnceValue(func() string {
	for _, name := range sql.Drivers() {
		if name != "sqlite" && strings.Contains(name, "sqlite") {
			return name
		}
	}
	return ""
})

// descriptors returns how many this process has of a file, without opening it. It is 0 where there
// is no /proc.
func descriptors(path string) (n int) {
	const dir = "/proc/self/fd"
	file, err := os.Stat(path)
	if err != nil {
		return 0
	}
	all, _ := os.ReadDir(dir)
	for _, fd := range all {
		if info, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(info, file) {
			n++
		}
	}
	return n
}

func twoLibraries(path string) error {
	return fmt.Errorf("this process has %s open by another library for SQLite, too, perhaps by the one called %q, and each would undo the locks of the other: "+
		"use modernc.org/sqlite alone for this file", path, secondLibrary())
}

// opened has, by path, how many connections this package has.
var opened sync.Map

// Connect opens the file, if nobody else in this process has it open by another library.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	n, _ := opened.LoadOrStore(c.path, new(atomic.Int64))
	ours := n.(*atomic.Int64)
	var err error
	if ours.Add(1) == 1 && secondLibrary() != "" && descriptors(c.path) > 0 {
		err = twoLibraries(c.path)
	}
	if err == nil {
		var w *watched
		if w, err = c.connect(ctx); err == nil {
			w.closed = func() { ours.Add(-1) }
			return w, nil
		}
	}
	ours.Add(-1)
	return nil, err
}

// connect opens the file, and looks before and after that which one it is.
func (c *connector) connect(ctx context.Context) (*watched, error) {
	if _, err := os.Stat(c.path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(c.path)); err != nil {
			return nil, err
		} else if !c.writes {
			return nil, errNoFile
		}
		create(c.path)
	}
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// The last connection to close would delete the files beside it by their names, and so perhaps
	// those of a file that has taken its place.
	all := made.(conn)
	_, err = all.FileControlPersistWAL("main", 1)
	file, failed := os.Stat(c.path)
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return &watched{conn: all, path: c.path, file: file}, nil
}

// create makes the file so that nobody but its owner may open it, and those that SQLite makes
// beside it. If it cannot, SQLite says why. The file is made by another name: closing it would undo
// the locks of one that somebody has opened by then.
func create(path string) {
	if f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"); err == nil {
		_, _, _ = f.Close(), os.Link(f.Name(), path), os.Remove(f.Name())
	}
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

	path   string
	file   os.FileInfo
	closed func()
}

// Close implements driver.Conn.
func (w *watched) Close() error {
	defer w.closed()
	return w.conn.Close()
}

// ResetSession implements driver.SessionResetter.
func (w *watched) ResetSession(ctx context.Context) error {
	if there, err := os.Stat(w.path); err != nil || !os.SameFile(there, w.file) {
		return driver.ErrBadConn
	}
	return w.conn.ResetSession(ctx)
}
