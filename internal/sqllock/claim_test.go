package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/sqllock"
)

// The queue cannot be joined any more when ctx ends. What was answered counts: the lock is held.
func TestAsk_isInterruptedWhileItJoinsTheQueue(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	db := &database{row: row{token: 5, owner: "another", until: 1 << 40}}
	db.exec = func(ctx context.Context, statement string, _ []sqldriver.NamedValue) (int64, error) {
		if strings.HasPrefix(statement, "REPLACE") {
			cancel()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 1, nil
	}
	_, err := db.claim(t).Ask(ctx)
	require.ErrorIs(t, err, driver.ErrHeld)
}

// A take whose reply was lost is granted by the next Ask, from when that is sent.
func TestAsk_afterATakeWhoseReplyWasLost(t *testing.T) {
	db := &database{row: row{token: 5}}
	var extended int
	db.exec = func(_ context.Context, statement string, args []sqldriver.NamedValue) (int64, error) {
		switch {
		case strings.Contains(statement, "owner = ?\n"): // take
			db.row = row{token: 6, owner: string(args[3].Value.([]byte)), until: 1 << 40}
			return 0, io.ErrUnexpectedEOF
		case strings.Contains(statement, "SET until"):
			extended++
			return 1, nil
		}
		return 0, nil
	}
	c := db.claim(t)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = c.Ask(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 6, c.Token())
	assert.Positive(t, c.Validity())
	assert.Equal(t, 1, extended)
}

// A server of a cluster may not have heard yet of the token that another has told. A take that was
// sent with that token may arrive still.
func TestRelease_afterALookAtAServerThatIsBehind(t *testing.T) {
	db := &database{row: row{token: 5}}
	var takes int
	var passed []int64
	db.exec = func(_ context.Context, statement string, args []sqldriver.NamedValue) (int64, error) {
		switch {
		case strings.Contains(statement, "owner = ?\n"): // take
			if takes++; takes == 1 {
				db.row.token = 4
				return 0, io.ErrUnexpectedEOF
			}
		case strings.Contains(statement, "SET token = token + 1"): // pass
			passed = append(passed, args[1].Value.(int64))
			return 1, nil
		}
		return 0, nil
	}
	c := db.claim(t)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	assert.Greater(t, takes, 1)
	require.NoError(t, c.Release(t.Context()))
	assert.Equal(t, []int64{5}, passed)
}

// A commit may fail after its statement has returned a row, as in SQLite where others read. The
// token of such a try was rolled back with it.
func TestAsk_whoseCommitFailsAfterItsRowWasReturned(t *testing.T) {
	db := &database{row: row{token: 5}}
	var takes int
	db.returning = func() *rows {
		if takes++; takes == 1 {
			return &rows{of: []sqldriver.Value{int64(6)}, end: errAgain}
		}
		db.row = row{token: 6, owner: "another", until: 1 << 40} // which was faster
		return &rows{}
	}
	db.exec = func(context.Context, string, []sqldriver.NamedValue) (int64, error) { return 1, nil }
	c := db.claim(t)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	assert.Equal(t, 2, takes)
	assert.Zero(t, c.Token())
}

// Connections that break are an outage, which a waiter rides out, and no answer.
func TestAsk_onConnectionsThatBreak(t *testing.T) {
	broken := errors.New("so says the library")
	for _, err := range []error{sqldriver.ErrBadConn, broken} {
		db := &database{row: row{token: 5}, broken: broken}
		db.exec = func(context.Context, string, []sqldriver.NamedValue) (int64, error) { return 0, err }
		_, got := db.claim(t).Ask(t.Context())
		require.ErrorIs(t, got, err)
		assert.True(t, noanswer.Outage(got), got)
		ctx, cancel := context.WithCancel(t.Context())
		db.exec = func(context.Context, string, []sqldriver.NamedValue) (int64, error) { cancel(); return 0, err }
		_, got = db.claim(t).Ask(ctx)
		require.ErrorIs(t, got, context.Canceled, "which broke it, perhaps")
	}
}

// database has one lock. It answers look, and what is executed as exec says.
type database struct {
	row    row
	exec   func(ctx context.Context, statement string, args []sqldriver.NamedValue) (changed int64, err error)
	broken error

	returning func() *rows // of a take; nil: the database has no RETURNING
}

// errAgain is of a statement that others were in the way of.
var errAgain = errors.New("busy")

type row struct {
	token, until int64
	owner        string
}

func (db *database) claim(t *testing.T) driver.Claim {
	t.Helper()
	pool := sql.OpenDB(db)
	token := "LAST_INSERT_ID"
	if db.returning != nil {
		token = ""
	}
	d := sqllock.New(sqllock.Dialect{
		Locks: "locks", Waiters: "waiters", Token: token, Greatest: "GREATEST", Now: "now", Wall: "wall", Primary: "1",
		Prepare:     func(context.Context, *sql.Conn) error { return nil },
		NoTable:     func(error) bool { return false },
		Again:       func(err error) bool { return errors.Is(err, errAgain) },
		WrongServer: func(error) bool { return false },
		Later:       func(err error) bool { return errors.Is(err, db.broken) },
		Poll:        time.Millisecond,
	}, sqllock.Pools{Ask: pool, Keep: pool, Read: pool, Close: pool.Close})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.Claim(driver.Request{Name: "x", TTL: time.Minute, Wake: func() {}})
}

func (db *database) Connect(context.Context) (sqldriver.Conn, error) { return conn{db}, nil }
func (db *database) Driver() sqldriver.Driver                        { return nil }

// conn is a connection to a database.
type conn struct{ of *database }

func (conn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (conn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (conn) Close() error                           { return nil }

func (c conn) ExecContext(ctx context.Context, statement string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	n, err := c.of.exec(ctx, statement, args)
	return sqldriver.RowsAffected(n), err
}

func (c conn) QueryContext(_ context.Context, statement string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if strings.Contains(statement, "RETURNING") {
		return c.of.returning(), nil
	}
	r := c.of.row
	return &rows{of: []sqldriver.Value{r.token, []byte(r.owner), []byte{}, int64(0), r.until, int64(0), int64(1), false}}, nil
}

// rows is a result of one row, or none, and how closing it ends.
type rows struct {
	of  []sqldriver.Value
	end error
}

func (r *rows) Columns() []string { return make([]string, len(r.of)) }
func (r *rows) Close() error      { return r.end }

func (r *rows) Next(to []sqldriver.Value) error {
	if r.of == nil {
		return io.EOF
	}
	copy(to, r.of)
	r.of = nil
	return nil
}
