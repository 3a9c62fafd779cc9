package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-locker/locker/fence"
)

// Guard is a [fence.Guard] that many processes share and none forgets, for a resource that has no place for a token of
// its own: it keeps them in a [Table], and lets others wait on the table's rows. What is written into the database
// itself is better guarded by [Exec] or [Table.Admit], in its own transaction.
//
// No other write is let through for as long as Guard's connection to the database lives. If that ends before the write
// does, another may be let through meanwhile; Write returns an error then, also where the write has succeeded.
//
// That connection is in a transaction that does nothing while the write goes on. So what ends such connections has to be
// longer than the longest write, or off: idle_in_transaction_session_timeout and transaction_timeout in PostgreSQL,
// wait_timeout in MySQL and MariaDB, MariaDB's idle_transaction_timeout and idle_write_transaction_timeout, and the patience of a proxy in between.
type Guard struct {
	DB    *sql.DB // of whose connections each Write has one at a time
	Table Table   // that was created
}

var _ fence.Guard = Guard{}

// Write implements [fence.Guard]. Besides ctx the database limits how long it waits for another Write: by
// innodb_lock_wait_timeout in MySQL, lock_timeout in PostgreSQL, busy_timeout in SQLite. In SQLite all other resources
// wait too, as does all else that writes into the same database: write must not.
func (g Guard) Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) (err error) {
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
func (g Guard) turn(ctx context.Context, resource string, token uint64) (*sql.Tx, error) {
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

func (g Guard) admit(ctx, lifetime context.Context, resource string, token uint64) (*sql.Tx, error) {
	if err := g.Table.checkAdmit(nil, resource, token); err != nil {
		return nil, err
	}
	options := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // where who has waited is not told to come again
	if g.Table.Dialect == SQLite {
		options = nil
	}
	tx, err := g.DB.BeginTx(lifetime, options)
	if err != nil {
		return nil, ended(ctx, fmt.Errorf("sqlfence: %q: %w", resource, err))
	}
	if err := g.Table.Admit(ctx, tx, resource, token); err != nil {
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
