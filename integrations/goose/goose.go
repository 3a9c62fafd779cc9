// Package goose lets one of many programs run the migrations of github.com/pressly/goose/v3, under
// a lock of any backend.
//
// Goose's interfaces for locks (lock.Locker, lock.SessionLocker) cannot tell that a lock was lost.
// With a [Lock] alone, a holder that was paused past its TTL goes on when it wakes, and a migration
// may be applied twice. But goose's Store records a version in the transaction of its migration. So
// the Store of [NewStore] checks the fencing token there: the migration of a holder that has lost
// the lock is refused, and rolled back. The context that [Context] returns ends when the lock is
// lost.
//
//	import lockergoose "github.com/go-locker/locker/integrations/goose" // beside goose itself
//
//	m := client.Mutex("migrate")
//	store, err := lockergoose.NewStore(m, goose.DialectPostgres, goose.DefaultTablename)
//	provider, err := goose.NewProvider(goose.DialectCustom, db, migrations,
//		goose.WithStore(store), goose.WithLocker(lockergoose.New(m)))
//
//	ctx, cancel := lockergoose.Context(ctx)
//	defer cancel()
//	applied, err := provider.Up(ctx)
//
// # What holds
//
// Every program that migrates the database has to use this Store, with a lock of one name at one
// backend. Then
//
//   - a migration in a transaction is applied once, and undone once. A new holder shows its token
//     to the database before it reads which versions are applied. From then on the database refuses
//     earlier holders. If an earlier holder is about to commit, the new holder waits for the
//     commit.
//   - a migration without a transaction (NO TRANSACTION, goose.GoFunc.RunDB, goose.WithIsolateDDL)
//     may be run by two holders, even at the same time. It must allow for that. It is recorded
//     once: a holder that has lost the lock cannot record it, and goose stops there. With [Context]
//     such a holder sends no further statement from the moment when it can see its loss.
//
// A paused holder may have an open transaction. Until the transaction ends, the new holder waits
// for its rows and tables. In SQLite the new holder fails when busy_timeout has passed.
//
// goose.WithDisableVersioning uses no Store: nothing is checked. For other databases there are
// [New] and [Context], and no fence. In MySQL each statement that changes a table commits, so there
// would be nothing to roll back.
//
// The newest token is in the table fencing_tokens, which the Store creates, in a row that is named
// after goose's table. If the lock's backend loses its data, tokens of etcd and ZooKeeper begin
// anew, and the database refuses them until [locker.WithTokenBase] makes them larger.
package goose

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
)

// Lock is a lock for goose.WithLocker, or goose.WithSessionLocker; it is the same for both, because
// it uses no connection to the database. By a Lock alone, goose does not learn of a loss. The
// caller of Up learns of it at the end: the error then matches [locker.ErrLost].
type Lock struct{ mutex *locker.Mutex }

var (
	_ lock.Locker        = (*Lock)(nil)
	_ lock.SessionLocker = (*Lock)(nil)
)

// New returns a Lock over m, which nothing else should lock.
func New(m *locker.Mutex) *Lock { return &Lock{m} }

// Lock waits until the lock is held or ctx is done. See [locker.Mutex.Lock].
func (l *Lock) Lock(ctx context.Context, _ *sql.DB) error {
	if err := l.mutex.Lock(ctx); err != nil {
		return err
	}
	if c, ok := ctx.Value(lossKey{}).(*lossContext); ok {
		c.follow(l.mutex.Hold())
	}
	return nil
}

// Unlock releases the lock, also if ctx has ended: it returns by the deadline of the hold. See
// [locker.Mutex.Unlock].
func (l *Lock) Unlock(ctx context.Context, _ *sql.DB) error {
	return l.mutex.Unlock(context.WithoutCancel(ctx))
}

// SessionLock is Lock.
func (l *Lock) SessionLock(ctx context.Context, _ *sql.Conn) error { return l.Lock(ctx, nil) }

// SessionUnlock is Unlock.
func (l *Lock) SessionUnlock(ctx context.Context, _ *sql.Conn) error { return l.Unlock(ctx, nil) }

// Context returns a context for the methods of a goose.Provider. It ends when ctx ends. If a Lock
// has taken its hold with this context, the context also ends when this hold is lost, with the
// cause [locker.ErrLost]. Its Err and Done look at the clock, so that they are right at the first
// look after a pause of the process. Call the returned function when the work is done.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	own, end := context.WithCancelCause(ctx)
	c := &lossContext{end: end}
	c.Context = context.WithValue(own, lossKey{}, c)
	return c, func() { end(nil) }
}

type lossKey struct{}

// lossContext is made before the hold that it ends with.
type lossContext struct {
	context.Context

	end  context.CancelCauseFunc
	held atomic.Pointer[context.Context] // the latest hold's, from Hold.Context
}

// follow ends c when h is lost.
func (c *lossContext) follow(h *locker.Hold) {
	held, cancel := h.Context(context.WithoutCancel(c), 0)
	c.held.Store(&held)
	context.AfterFunc(held, func() { // at the latest at the Unlock
		c.endIfLost(held)
		cancel()
	})
}

// look asks the clock.
func (c *lossContext) look() {
	if held := c.held.Load(); held != nil && (*held).Err() != nil {
		c.endIfLost(*held)
	}
}

// endIfLost tells a loss from an Unlock, which leaves c as it is.
func (c *lossContext) endIfLost(held context.Context) {
	if errors.Is(context.Cause(held), locker.ErrLost) {
		c.end(locker.ErrLost)
	}
}

// Err implements [context.Context].
func (c *lossContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements [context.Context].
func (c *lossContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

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
		// Read committed: no serialization failure after a wait.
		s.options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
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
	if own, ok := s.Store.(database.StoreExtender); ok {
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
	if s.mutex.Hold() == nil {
		return fmt.Errorf("the Mutex %q of the store is not locked: give a Lock of it to goose.WithLocker: %w", s.mutex.Name(), locker.ErrNotHeld)
	}
	return fmt.Errorf("the lock %q: %w", s.mutex.Name(), locker.ErrLost)
}
