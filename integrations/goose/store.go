package goose

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pressly/goose/v3/database"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
)

// NewStore returns goose's own Store for dialect and the version table called name, with a fence:
// it records or deletes a version only while m is held, and only if the database has seen no token
// of a later hold. Otherwise the error matches fence.ErrStale, [locker.ErrLost] or
// [locker.ErrNotHeld], and goose rolls the migration back. Give it to goose.WithStore, and m to
// [New].
//
// The dialect is goose.DialectPostgres or goose.DialectSQLite3.
func NewStore(m *locker.Mutex, dialect database.Dialect, name string) (database.Store, error) {
	s := &store{mutex: m}
	switch dialect {
	case database.DialectPostgres:
		s.table.Dialect = sqlfence.Postgres
		s.options = &sql.TxOptions{Isolation: sql.LevelReadCommitted} // who has waited is not told to come again
	case database.DialectSQLite3:
		s.table.Dialect = sqlfence.SQLite
	default:
		return nil, fmt.Errorf("lockergoose: no fence for the dialect %q: want %q or %q, whose transactions undo any migration",
			dialect, database.DialectPostgres, database.DialectSQLite3)
	}
	var err error
	s.Store, err = database.NewStore(dialect, name)
	return s, err
}

// store adds to goose's the check of the token.
type store struct {
	database.Store

	mutex   *locker.Mutex
	table   sqlfence.Table
	options *sql.TxOptions // of transactions that are ours
	shown   atomic.Uint64  // the token that the database has seen
}

// TableExists asks a method of goose's Store that the interface does not have.
func (s *store) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	if own, ok := s.Store.(interface {
		TableExists(ctx context.Context, db database.DBTxConn) (bool, error)
	}); ok {
		return own.TableExists(ctx, db)
	}
	return false, errors.ErrUnsupported
}

// ListMigrations comes first under a lock, before Up and Down. GetMigration does before
// ApplyVersion.
func (s *store) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	if err := s.show(ctx, db); err != nil {
		return nil, err
	}
	return s.Store.ListMigrations(ctx, db)
}

func (s *store) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	if err := s.show(ctx, db); err != nil {
		return nil, err
	}
	return s.Store.GetMigration(ctx, db, version)
}

func (s *store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if req.Version == 0 { // goose's own row, written without a lock by the process that makes the table
		return s.Store.Insert(ctx, db, req)
	}
	err := s.admitted(ctx, db, func(tx database.DBTxConn) error { return s.Store.Insert(ctx, tx, req) })
	return refused("apply", req.Version, err)
}

func (s *store) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	err := s.admitted(ctx, db, func(tx database.DBTxConn) error { return s.Store.Delete(ctx, tx, version) })
	return refused("undo", version, err)
}

func refused(what string, version int64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lockergoose: %s version %d: %w", what, version, err)
}

// show has the database refuse the tokens of earlier holders before this one reads which versions there are. It waits for one
// that is about to commit.
func (s *store) show(ctx context.Context, db database.DBTxConn) error {
	token := s.mutex.FencingToken()
	if token == 0 || token == s.shown.Load() { // 0: goose's HasPending takes no lock
		return nil
	}
	err := s.table.Create(ctx, db)
	if err == nil {
		err = s.admitted(ctx, db, func(database.DBTxConn) error { return nil })
	}
	if err != nil {
		return fmt.Errorf("lockergoose: begin as the holder of token %d: %w", token, err)
	}
	s.shown.Store(token)
	return nil
}

// admitted calls write in a transaction that the current token was admitted to: in db, or if that is none, in one of its own.
func (s *store) admitted(ctx context.Context, db database.DBTxConn, write func(tx database.DBTxConn) error) error {
	begin, ok := db.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	if !ok {
		return s.admit(ctx, db, write)
	}
	tx, err := begin.BeginTx(ctx, s.options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := s.admit(ctx, tx, write); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *store) admit(ctx context.Context, tx database.DBTxConn, write func(tx database.DBTxConn) error) error {
	token := s.mutex.FencingToken()
	if token == 0 {
		return s.notHeld()
	}
	if err := s.table.Admit(ctx, tx, s.Tablename(), token); err != nil {
		return err
	}
	return write(tx)
}

// notHeld tells a loss from a Provider without a lock.
func (s *store) notHeld() error {
	if s.mutex.Deadline().IsZero() {
		return fmt.Errorf("the Mutex %q of the store is not locked: give a Lock of it to goose.WithLocker: %w", s.mutex.Name(), locker.ErrNotHeld)
	}
	return fmt.Errorf("the lock %q: %w", s.mutex.Name(), locker.ErrLost)
}
