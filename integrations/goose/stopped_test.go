//go:build unix

package goose_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testwait"
)

// What a process that migrates is told in its environment.
const (
	envLock    = "LOCKER_GOOSE_LOCK"
	envDialect = "LOCKER_GOOSE_DIALECT"
	envDriver  = "LOCKER_GOOSE_DRIVER"
	envDSN     = "LOCKER_GOOSE_DSN"
	envHow     = "LOCKER_GOOSE_HOW"
	envWhere   = "LOCKER_GOOSE_WHERE"
)

// How it migrates.
const (
	plain       = "goose's own Store, a context that knows of no loss"
	fenced      = "a Store with a fence, the same context"
	withContext = "a Store with a fence, a context that ends with the loss"
)

// Where in its second migration a process is stopped.
const (
	beforeItsWrite  = "before its write"
	afterItsWrite   = "after its write"
	beforeItsCommit = "before its commit" // its version is recorded
	betweenWrites   = "between the two writes of a migration without a transaction"
)

func init() { child.Register("migrate", serveMigrate) }

// serveMigrate is a process that migrates, says when it is there, and waits for a word.
func serveMigrate(t testing.TB) {
	d := target{goose.Dialect(os.Getenv(envDialect)), os.Getenv(envDriver), os.Getenv(envDSN)}
	i := newInstance(t, os.Getenv(envLock), d)
	stop := func(context.Context) error {
		fmt.Println("halfway")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	}
	if os.Getenv(envHow) == withContext {
		stop = i.outlive
	}
	p := i.toStop(t, os.Getenv(envHow), os.Getenv(envWhere), stop)
	ctx := t.Context()
	if os.Getenv(envHow) == withContext {
		own, cancel := lockergoose.Context(ctx)
		defer cancel()
		ctx = own
	}
	_, err := p.Up(ctx)
	fmt.Println("done", err == nil, errors.Is(err, locker.ErrLost))
}

// outlive returns when the hold is over by the clock, on a thread that no timer interrupts: what comes next is the first look after a wake.
func (i instance) outlive(context.Context) error {
	runtime.GOMAXPROCS(1)
	fmt.Println("halfway")
	for time.Now().Before(i.mutex.Hold().Deadline()) {
	}
	return nil
}

// toStop is a Provider that calls stop in its second migration.
func (i instance) toStop(t testing.TB, how, where string, stop func(context.Context) error) *goose.Provider {
	t.Helper()
	provide := i.fenced
	if how == plain {
		provide = i.plain
	}
	switch where {
	case beforeItsWrite:
		return provide(t, second(stop, nil))
	case afterItsWrite:
		return provide(t, second(nil, stop))
	case betweenWrites:
		return provide(t, twoWrites(stop))
	}
	store, err := lockergoose.NewStore(i.mutex, i.dialect, goose.DefaultTablename)
	require.NoError(t, err)
	return i.provider(t, goose.DialectCustom, second(nil, nil),
		goose.WithStore(stoppingStore{store, stop}), goose.WithLocker(lockergoose.New(i.mutex)))
}

// stoppingStore calls stop when the second version is recorded, and not yet committed.
type stoppingStore struct {
	database.Store

	stop func(context.Context) error
}

func (s stoppingStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	err := s.Store.Insert(ctx, db, req)
	if err == nil && req.Version == 2 {
		err = s.stop(ctx)
	}
	return err
}

// twoWrites is a second migration without a transaction. It adds 1, and then 100.
func twoWrites(between func(context.Context) error) goose.ProviderOption {
	up := func(ctx context.Context, db *sql.DB) error {
		if err := add(ctx, db, 1); err != nil {
			return err
		}
		if err := between(ctx); err != nil {
			return err
		}
		return add(ctx, db, 100)
	}
	return goose.WithGoMigrations(goose.NewGoMigration(2, &goose.GoFunc{RunDB: up}, nil))
}

func noStop(context.Context) error { return nil }

// stopped is a process that has been stopped in its second migration, and who migrates in the meantime.
type stopped struct {
	*child.Process

	other    instance
	provider *goose.Provider
}

func stop(t *testing.T, lock string, d target, how, where string) stopped {
	t.Helper()
	p := child.Start(t, "migrate", envLock+"="+lock, envDialect+"="+string(d.dialect), envDriver+"="+d.driver, envDSN+"="+d.dsn,
		envHow+"="+how, envWhere+"="+where)
	p.Says("halfway")
	p.Stop()
	p.Tell("go on")
	other := newInstance(t, lock, d)
	return stopped{p, other, other.toStop(t, how, where, noStop)}
}

// wakes returns whether it has then migrated, and whether its error is ErrLost.
func (s stopped) wakes() (migrated, lost bool) {
	s.Continue()
	said := s.Says("done")
	return said[0] == "true", said[1] == "true"
}

func (s stopped) isRefused(t *testing.T) {
	t.Helper()
	migrated, lost := s.wakes()
	assert.False(t, migrated)
	assert.True(t, lost)
}

// A process is stopped in the middle of a migration for longer than its TTL, and wakes when another is done. Goose's interfaces for
// locks have nothing to say then: it goes on, and hears of its loss at the end.
func TestStopped_withoutAFenceAMigrationIsAppliedTwice(t *testing.T) {
	onRedis(t, func(t *testing.T, lock string, d target) {
		s := stop(t, lock, d, plain, beforeItsWrite)
		_, err := s.provider.Up(t.Context())
		require.NoError(t, err)
		_, lost := s.wakes()
		assert.True(t, lost, "from Unlock")
		s.other.assertState(t, 2, 2)
	})
}

func TestStopped_withAFenceItIsRefused(t *testing.T) {
	onRedis(t, func(t *testing.T, lock string, d target) {
		s := stop(t, lock, d, fenced, beforeItsWrite)
		applied, err := s.provider.Up(t.Context())
		require.NoError(t, err)
		assert.Len(t, applied, 1)
		s.isRefused(t)
		s.other.assertState(t, 1, 1)
	})
}

// The other waits in the database for what the stopped one has written, and must not come after it.
func TestStopped_afterItsWriteItIsRefusedToo(t *testing.T) {
	t.Parallel()
	s := stop(t, redis(t), databases["PostgreSQL"](t), fenced, afterItsWrite)
	done := testwait.Go(func() error { _, err := s.provider.Up(t.Context()); return err })
	s.other.waitsInPostgres(t)
	s.isRefused(t)
	require.NoError(t, patience.Result(t, done))
	s.other.assertState(t, 1, 1)
}

// The token of the one that was stopped was admitted. So the other has to wait for its commit before it reads the versions.
func TestStopped_beforeItsCommitItIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			d := databases["PostgreSQL"](t)
			d.dsn += "&default_transaction_isolation=" + url.PathEscape(level)
			s := stop(t, redis(t), d, fenced, beforeItsCommit)
			done := testwait.Go(func() error { _, err := s.provider.Up(t.Context()); return err })
			s.other.waitsInPostgres(t)
			_, lost := s.wakes()
			assert.True(t, lost, "from Unlock")
			require.NoError(t, patience.Result(t, done))
			s.other.assertState(t, 1, 1)
		})
	}
}

func (i instance) waitsInPostgres(t *testing.T) {
	t.Helper()
	patience.Until(t, "a transaction waits for another", func() bool {
		var n int
		require.NoError(t, i.db.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n))
		return n > 0
	})
}

// SQLite has one writer at a time: the other gives up when busy_timeout has passed.
func TestStopped_inSQLiteAfterItsWriteNobodyGetsIn(t *testing.T) {
	t.Parallel()
	s := stop(t, redis(t), databases["SQLite"](t), fenced, afterItsWrite)
	_, err := s.provider.Up(t.Context())
	require.ErrorContains(t, err, "database is locked")
	s.isRefused(t)
	s.other.assertState(t, 0, 0)
	_, err = s.provider.Up(t.Context())
	require.NoError(t, err)
	s.other.assertState(t, 1, 1)
}

// What a migration without a transaction has done stays done, and the other does it again. But it is recorded once.
func TestStopped_withoutATransactionStatementsAreRunTwice(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]int{
		fenced:      202, // it has done all of it, both have
		withContext: 102, // its second statement was not sent
	} {
		for name, d := range databases {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := stop(t, redis(t), d(t), how, betweenWrites)
				_, err := s.provider.Up(t.Context())
				require.NoError(t, err)
				s.isRefused(t)
				s.other.assertState(t, want, 1)
			})
		}
	}
}
