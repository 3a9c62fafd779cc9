package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-locker/locker/fence"
)

// Guard returns a [fence.Guard] that many processes share, for a resource that has no place for a
// token. It keeps the tokens in the table, which has to exist (see [Table.Create]) and outlives the
// processes. A writer locks the row of its resource, and other writers wait for it. Each write
// takes one connection of db. Use [Exec] or [Table.Admit], not a Guard, for writes into the
// database itself.
//
// During a write the Guard lets no other write through, for as long as its connection to the
// database lives. If the connection ends before the write does, another write may be let through.
// Then Write returns an error, even if the write has succeeded.
//
// That connection is in a transaction that does nothing while the write goes on. So the time-outs
// that end such connections have to be longer than the longest write, or off:
// idle_in_transaction_session_timeout and transaction_timeout in PostgreSQL, wait_timeout in MySQL
// and MariaDB, MariaDB's idle_transaction_timeout and idle_write_transaction_timeout, and those of
// a proxy in between.
//
// Besides its context, the database limits how long a write waits for another one: by
// innodb_lock_wait_timeout in MySQL, lock_timeout in PostgreSQL, busy_timeout in SQLite. In SQLite
// all writes for other resources wait, too, and so does everything else that writes into the same
// database. So the function write must not write into that database.
func (t Table) Guard(db *sql.DB) fence.Guard { return guard{db, t} }

type guard struct {
	db    *sql.DB
	table Table
}

func (g guard) Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) (err error) {
	// The token is seen before anything is written, and whatever comes of it.
	seen, err := g.admit(ctx, ctx, resource, token)
	if err != nil {
		return err
	}
	if err := seen.Commit(); err != nil {
		return ended(ctx, fmt.Errorf("sqlfence: %q: admitting token %d: %w", resource, token, err))
	}
	turn, err := g.turn(ctx, resource, token)
	if err != nil {
		return err
	}
	defer func() {
		// It has nothing to commit. That it ends now, and not before, is what counts.
		if lost := turn.Rollback(); lost != nil && err == nil {
			err = fmt.Errorf("sqlfence: %q: written, but others may have been let through meanwhile: %w", resource, lost)
		}
	}()
	return write(ctx)
}

// turn is a transaction that ctx does not end once token is admitted: one of database/sql ends with its context, which
// would be in the midst of the write.
func (g guard) turn(ctx context.Context, resource string, token uint64) (*sql.Tx, error) {
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	turn, err := g.admit(ctx, lifetime, resource, token)
	if err != nil {
		end()
		return nil, err
	}
	if !stop() {
		_ = turn.Rollback()
		return nil, ended(ctx, fmt.Errorf("sqlfence: %q: nothing was written", resource))
	}
	return turn, nil
}

func (g guard) admit(ctx, lifetime context.Context, resource string, token uint64) (*sql.Tx, error) {
	if err := g.table.checkAdmit(nil, resource, token); err != nil {
		return nil, err
	}
	// Read committed: no serialization failure after a wait.
	options := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if g.table.Dialect == SQLite {
		options = nil
	}
	tx, err := g.db.BeginTx(lifetime, options)
	if err != nil {
		return nil, ended(ctx, fmt.Errorf("sqlfence: %q: %w", resource, err))
	}
	if err := g.table.Admit(ctx, tx, resource, token); err != nil {
		_ = tx.Rollback()
		return nil, ended(ctx, err)
	}
	return tx, nil
}

// ended returns err, with the cause of ctx if that has ended: drivers report that in their own ways.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, fence.ErrStale) {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}
