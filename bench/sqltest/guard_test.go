package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/testwait"
)

func runGuard(t *testing.T, test func(t *testing.T, d *database, db *sql.DB, g fence.Guard)) {
	run(t, func(t *testing.T, d *database) {
		l := d.plain()
		if d.dialect == sqlfence.SQLite {
			l.params = "_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)"
		}
		db := d.fresh(t, l)
		test(t, d, db, sqlfence.Guard{DB: db, Table: d.table()})
	})
}

func nothing(context.Context) error { return nil }

func TestGuard_keepsTheRule(t *testing.T) {
	runGuard(t, func(t *testing.T, _ *database, _ *sql.DB, g fence.Guard) {
		called := 0
		write := func(context.Context) error { called++; return nil }
		require.ErrorIs(t, g.Write(t.Context(), "r", 0, write), fence.ErrStale)
		require.NoError(t, g.Write(t.Context(), "r", 5, write))
		require.NoError(t, g.Write(t.Context(), "r", 5, write))
		var stale *fence.StaleError
		require.ErrorAs(t, g.Write(t.Context(), "r", 4, write), &stale)
		assert.Equal(t, fence.StaleError{Resource: "r", Token: 4, Newest: 5}, *stale)
		assert.Equal(t, 2, called)

		failed := errors.New("failed")
		require.Equal(t, failed, g.Write(t.Context(), "r", 7, func(context.Context) error { return failed }), "as it is")
		require.ErrorIs(t, g.Write(t.Context(), "r", 6, write), fence.ErrStale, "7 was seen although its write failed")
		assert.Panics(t, func() { _ = g.Write(t.Context(), "r", 9, func(context.Context) error { panic("in the midst of it") }) })
		require.ErrorIs(t, g.Write(t.Context(), "r", 8, write), fence.ErrStale)
		require.NoError(t, g.Write(t.Context(), "r", 9, write), "the panic has ended the turn")
		assert.Equal(t, 3, called)

		ended, cancel := context.WithCancelCause(t.Context())
		cancel(failed)
		err := g.Write(ended, "r", 9, write)
		require.ErrorIs(t, err, failed)
		assert.Equal(t, 3, called)
	})
}

// Also when the context of the write that is under way has ended: it may take its time to notice.
func TestGuard_aLargerTokenWaitsUntilTheWriteReturns(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		ctx, cancel := context.WithCancel(t.Context())
		inside, proceed := make(chan struct{}), make(chan struct{})
		var order []string
		first := testwait.Go(func() error {
			return g.Write(ctx, "r", 1, func(context.Context) error {
				close(inside)
				<-proceed
				order = append(order, "first")
				return nil
			})
		})
		<-inside
		cancel()
		second := testwait.Go(func() error {
			return g.Write(t.Context(), "r", 2, func(context.Context) error { order = append(order, "second"); return nil })
		})
		if d.waiting != "" {
			require.True(t, d.waits(t, db, second))
		}
		close(proceed)
		require.NoError(t, patience.Result(t, first))
		require.NoError(t, patience.Result(t, second))
		assert.Equal(t, []string{"first", "second"}, order)
	})
}

func TestGuard_waitsNoLongerThanItsContext(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		if d.waiting == "" {
			t.Skip("it waits as long as busy_timeout says")
		}
		require.NoError(t, g.Write(t.Context(), "r", 1, func(context.Context) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			second := testwait.Go(func() error { return g.Write(ctx, "r", 2, nothing) })
			require.True(t, d.waits(t, db, second))
			cancel(enough)
			require.ErrorIs(t, patience.Result(t, second), enough)
			return nil
		}))
	})
}

// Databases can be told to end a transaction that does nothing, which is what a turn looks like to them.
func TestGuard_losesItsTurnToATimeoutOfIdleTransactions(t *testing.T) {
	runGuard(t, func(t *testing.T, d *database, db *sql.DB, g fence.Guard) {
		limits := map[sqlfence.Dialect][]string{
			sqlfence.Postgres: {`ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '1s'`},
			sqlfence.MySQL: {
				`SET GLOBAL idle_transaction_timeout = 1`,
				`SET GLOBAL idle_transaction_timeout = 0, GLOBAL idle_write_transaction_timeout = 1`,
			},
		}[d.dialect]
		if limits == nil {
			t.Skip("it has no such limit")
		}
		t.Cleanup(func() {
			for _, reset := range map[sqlfence.Dialect][]string{
				sqlfence.Postgres: {`ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout`},
				sqlfence.MySQL:    {`SET GLOBAL idle_transaction_timeout = 0, GLOBAL idle_write_transaction_timeout = 0`},
			}[d.dialect] {
				_, err := d.open(t, d.plain()).ExecContext(context.Background(), reset)
				assert.NoError(t, err, "other tests have the same server")
			}
		})
		for i, limit := range limits {
			d.exec(t, db, limit)
			db.SetMaxIdleConns(0) // those of now have none
			db.SetMaxIdleConns(2)
			resource := fmt.Sprint("r", i)
			err := g.Write(t.Context(), resource, 1, func(ctx context.Context) error {
				return g.Write(ctx, resource, 2, nothing) // waits until the turn of this one is lost
			})
			require.ErrorContains(t, err, "others may have been let through", limit)
		}
	})
}
