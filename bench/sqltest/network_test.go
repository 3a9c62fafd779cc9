package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

const update = `UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ?`

// runNetwork gives a test a connection of its own to the database, on a network that fails.
func runNetwork(t *testing.T, test func(t *testing.T, d *database, db, far *sql.DB, proxy *testserver.Proxy)) {
	run(t, func(t *testing.T, d *database) {
		if d.through == nil {
			t.Skip("there is no network")
		}
		db := d.fresh(t, d.plain())
		d.exec(t, db, `INSERT INTO accounts (id, state) VALUES (1, 'new')`)
		proxy := testserver.NewProxy(t, d.addr)
		far := d.through(t, proxy)
		far.SetMaxOpenConns(1)
		test(t, d, db, far, proxy)
	})
}

func (d *database) write(ctx context.Context, db *sql.DB, state string, token uint64) error {
	return d.column().Exec(ctx, db, 1, token, d.sql(update), state, token, 1, token)
}

// The holder of 1 has long sent its write when 2 sends another, which overtakes it.
func TestExec_refusesARequestThatArrivesLate(t *testing.T) {
	runNetwork(t, func(t *testing.T, d *database, db, far *sql.DB, proxy *testserver.Proxy) {
		require.NoError(t, d.write(t.Context(), far, "older", 1)) // so that the statement is prepared, where it is
		proxy.HoldRequests(true)
		late := testwait.Go(func() error { return d.write(t.Context(), far, "late", 1) })
		patience.Until(t, "the request is on its way", func() bool { requests, _ := proxy.Held(); return requests > 0 })
		require.NoError(t, d.write(t.Context(), db, "newer", 2))
		proxy.ReleaseRequests()
		var stale *fence.StaleError
		require.ErrorAs(t, patience.Result(t, late), &stale)
		assert.Equal(t, uint64(2), stale.Newest)
		assertNewest(t, db)
	})
}

func TestExec_isRepeatedAfterALostReply(t *testing.T) {
	runNetwork(t, func(t *testing.T, d *database, db, far *sql.DB, proxy *testserver.Proxy) {
		require.NoError(t, d.write(t.Context(), far, "older", 1))
		proxy.DropReplies(true)
		first := testwait.Go(func() error { return d.write(t.Context(), far, "newer", 2) })
		patience.Until(t, "it is written", func() bool { state, _ := account(t, db); return state == "newer" })
		proxy.ResetConns()
		err := patience.Result(t, first)
		require.Error(t, err)
		require.NotErrorIs(t, err, fence.ErrStale, "nobody knows")

		proxy.DropReplies(false)
		require.NoError(t, d.write(t.Context(), far, "newer", 2))
		assertNewest(t, db)
	})
}
